import type { ListenOptions } from '../http/serve.ts';
import { isLoopback, resolveListen, serveHttp } from '../http/serve.ts';
import type { DashboardOptions } from './dashboard.ts';
import { checkDashboardOptions, createDashboard, dashboardOptionNames } from './dashboard.ts';

export interface ServeDashboardOptions extends Omit<DashboardOptions, 'open'>, Partial<ListenOptions> {
  /** Default 4400. */
  port?: number;
}

export interface DashboardServer {
  /** E.g. `http://127.0.0.1:4400`, with the port that it really has. */
  readonly url: string;
  /** Ends live pages, interrupts operations after their current chunk, and closes the port. */
  stop(): Promise<void>;
}

const dashboardPort = 4_400;
/** Without `open`, which the address decides: `open: false` would be ignored. */
const optionNames: readonly string[] = [...dashboardOptionNames.filter((name) => name !== 'open'), 'port', 'host'];

/**
 * Serves a dashboard on a port. On loopback it needs no token. On any other address it fails with
 * POSTCOMMIT_E_DASHBOARD_NO_AUTH unless it has a token or `authenticate`.
 */
export async function serveDashboard(options: ServeDashboardOptions): Promise<DashboardServer> {
  checkDashboardOptions(options, 'serveDashboard()', optionNames);
  const { port = dashboardPort, host, ...rest } = options;
  const listen = resolveListen({ port, ...(host !== undefined && { host }) });
  const dashboard = createDashboard({ ...rest, open: isLoopback(listen.host) });
  try {
    const { url, stop } = await serveHttp({
      ...listen,
      fetch: dashboard.fetch,
      ...(rest.onError && { onError: rest.onError }),
    });
    return {
      url: `${url}${rest.basePath ?? ''}`,
      stop: () => {
        dashboard.close();
        return stop();
      },
    };
  } catch (error) {
    dashboard.close();
    throw error;
  }
}
