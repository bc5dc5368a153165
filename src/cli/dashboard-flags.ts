import type { Command } from 'commander';
import { Option } from 'commander';
import { fromPg } from '../adapters/pg.ts';
import type { OutboxAdmin } from '../admin/admin.ts';
import type { DashboardServer } from '../dashboard/serve-dashboard.ts';
import { LazyPool } from '../database/pool.ts';
import { createOutbox } from '../emit/outbox.ts';
import { wholeNumber } from './arguments.ts';
import type { Settings } from './settings.ts';
import type { Terminal } from './terminal.ts';

/** How a command serves the dashboard. Tokens come from the environment: other users of the machine can see arguments. */
export interface DashboardFlags {
  port?: number;
  host?: string;
  readOnly?: boolean;
  redact?: string[];
  redactHeader?: string[];
  traceUrl?: string;
  trustedProxies?: number;
  onError?: (error: unknown) => void;
}

const defaultPort = 4_400;

export function dashboardOption(): Option {
  const text = `serve the dashboard on this port of loopback (default port: ${defaultPort})`;
  return new Option('--dashboard [port]', text).argParser(wholeNumber(0, 65_535));
}

/** The port that `--dashboard [port]` names, or `undefined` without the flag. */
export function portOf(flag: number | true | undefined): number | undefined {
  return flag === true ? defaultPort : flag;
}

export function addDashboardOptions(command: Command): Command {
  const collect = (value: string, before: string[] = []) => [...before, value];
  return command
    .option('--read-only', 'show everything, change nothing')
    .option('--redact <path>', 'hide this path of payloads, e.g. customer.email or **.password; repeatable', collect)
    .option('--redact-header <name>', 'hide this header; repeatable', collect)
    .option('--trace-url <url>', 'URL template for traces, containing {traceId}')
    .option(
      '--trusted-proxies <n>',
      'how many proxies are in front of it, whose X-Forwarded-For and X-Forwarded-Proto count (default: 0)',
      wholeNumber(0, 10),
    );
}

/** Serves the dashboard of the outboxes of the settings. One that is down does not keep it from starting if there are others. */
export async function startDashboard(
  settings: Settings,
  { env }: Terminal,
  { port = defaultPort, host, readOnly, redact, redactHeader, traceUrl, trustedProxies, onError }: DashboardFlags,
): Promise<DashboardServer> {
  const { serveDashboard } = await import('../dashboard/serve-dashboard.ts');
  const served = await settings.outboxes();
  const pools: LazyPool[] = [];
  // Not awaited: closing a connection to an unresponsive server hangs.
  const endPools = () => pools.forEach((pool) => void pool.end().catch(() => {}));
  try {
    const outboxes: Record<string, OutboxAdmin> = {};
    for (const { name, settings: own } of served) {
      const [connection, schema] = [await own.connection(), await own.schema()];
      const pool = new LazyPool(connection, 'postcommit dashboard');
      pools.push(pool);
      outboxes[name] = createOutbox({ db: fromPg(pool), schema }).admin;
    }
    if (pools.length === 1) await pools[0]?.open();
    const token = env.POSTCOMMIT_DASHBOARD_TOKEN || undefined;
    const readOnlyToken = env.POSTCOMMIT_DASHBOARD_READ_ONLY_TOKEN || undefined;
    const { by } = settings.operator();
    const server = await serveDashboard({
      outboxes,
      port,
      redact: { payload: redact ?? [], headers: redactHeader ?? [] },
      ...(host !== undefined && { host }),
      ...(readOnly && { readOnly }),
      ...(traceUrl !== undefined && { traceUrl }),
      ...(trustedProxies !== undefined && { trustedProxies }),
      ...(onError && { onError }),
      ...(by !== undefined && { by }),
      ...(token !== undefined && { token }),
      ...(readOnlyToken !== undefined && { readOnlyToken }),
    });
    const stop = async () => {
      await server.stop();
      endPools();
    };
    return { url: server.url, stop };
  } catch (error) {
    endPools();
    throw error;
  }
}
