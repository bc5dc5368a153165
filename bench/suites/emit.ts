import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { EmitReport, EmitTask } from '../emit/child.ts';
import { bareInsert, outboxTransactionAtOnce, plainEmit, type Style, styles, withoutEvent } from '../emit/styles.ts';
import { machine } from '../machine.ts';
import { packageAt } from '../peers.ts';
import { median } from '../ratio.ts';
import { makeReady } from '../ready.ts';
import { compare, type Goal, type Measurement, percentile } from '../report.ts';
import { forkChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

interface Setting {
  name: string;
  clients: number;
  /** Of the delaying proxy, each way; 0 means no proxy. */
  delayMs: number;
  turns: number;
  transactionsPerTurn: number;
}

const defaults = { loopbackTurns: 16, remoteTurns: 48, remoteDelayMicros: 430 };

/** What has to hold, by the name of the style and of what it is compared with. */
const goals: { measured: Style; baseline: Style; goal: Goal | undefined }[] = [
  { measured: outboxTransactionAtOnce, baseline: withoutEvent, goal: { atMost: 1.02 } },
  { measured: plainEmit, baseline: bareInsert, goal: { atMost: 1.1, next: 1.05 } },
  ...styles
    .filter((style) => ![withoutEvent, outboxTransactionAtOnce].includes(style))
    .map((measured) => ({ measured, baseline: withoutEvent, goal: undefined })),
];

/**
 * What an event adds to a business transaction: the time from before its first statement to the answer to its COMMIT.
 * Styles take turns of some transactions each, in random order, so that drift hits all alike. No relay runs.
 */
export const emit: Suite = {
  name: 'emit',
  summary: 'what one event adds to a business transaction, on loopback and at 1 ms round trip',
  names: styles.map(({ name }) => name),
  settings: defaults,

  async run(options) {
    const node = makeReady();
    const { loopbackTurns, remoteTurns, remoteDelayMicros } = { ...defaults, ...options.overrides.emit };
    const settings: Setting[] = [
      { name: 'one client on loopback', clients: 1, delayMs: 0, turns: loopbackTurns, transactionsPerTurn: 100 },
      {
        name: 'eight clients at 1 ms round trip',
        clients: 8,
        // What is missing to half a millisecond is what the proxy and the server take.
        delayMs: remoteDelayMicros / 1_000,
        turns: remoteTurns,
        transactionsPerTurn: 100,
      },
    ];
    const server = await startServer(options.databaseUrl);
    try {
      const measurements: Measurement[] = [];
      for (const setting of settings) {
        console.error(`${setting.name} ...`);
        measurements.push(...report(await measure(server, node, setting, options), setting, server, options));
      }
      return measurements;
    } finally {
      await server.stop();
    }
  },
};

async function measure(server: Server, node: string, setting: Setting, options: BenchOptions): Promise<EmitReport> {
  const database = `postcommit_bench_${process.pid}`;
  const connectionString = await server.createDatabase(database);
  const proxy = setting.delayMs > 0 ? await startProxy(node, connectionString, setting.delayMs) : undefined;
  try {
    const task: EmitTask = {
      connectionString,
      throughUrl: proxy?.url ?? connectionString,
      styles: chosen(styles, options).map(({ name }) => name),
      rounds: options.rounds,
      payloadBytes: options.payloadBytes,
      seed: options.seed,
      ...setting,
    };
    const file = new URL('../emit/child.ts', import.meta.url);
    const { interrupted } = options;
    return (await forkChild(node, file, task, { what: 'emit', timeoutMs: 600_000, interrupted })) as EmitReport;
  } finally {
    proxy?.stop();
    await server.dropDatabase(database);
  }
}

async function startProxy(
  node: string,
  connectionString: string,
  delayMs: number,
): Promise<{ url: string; stop(): void }> {
  const url = new URL(connectionString);
  const target = { host: url.hostname, port: Number(url.port || 5432), delayMs };
  const child = fork(fileURLToPath(new URL('../emit/delaying-proxy.ts', import.meta.url)), [JSON.stringify(target)], {
    execPath: node,
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdio: ['ignore', process.stderr, process.stderr, 'ipc'],
  });
  const port = await new Promise<number>((resolve, reject) => {
    child.once('message', (message) => resolve((message as { port: number }).port));
    child.once('error', reject);
    child.once('exit', () => reject(new Error('The delaying proxy did not start.')));
  });
  url.hostname = '127.0.0.1';
  url.port = String(port);
  return { url: url.href, stop: () => child.disconnect() };
}

function report(found: EmitReport, setting: Setting, server: Server, options: BenchOptions): Measurement[] {
  const figure = (style: Style, share: number): Measurement | undefined => {
    const rounds = found.rounds[style.name];
    if (!rounds) return undefined;
    const values = rounds.map(({ latenciesMs }) => percentile(latenciesMs, share));
    const perSecond = rounds.map(({ latenciesMs, busyMs }) => (latenciesMs.length / busyMs) * 1_000);
    return {
      suite: 'emit',
      name: `${style.name}, ${setting.name}, p${share * 100}`,
      value: median(values),
      unit: 'ms',
      rounds: values,
      details: {
        p99Ms: median(rounds.map(({ latenciesMs }) => percentile(latenciesMs, 0.99))),
        commitsPerSecond: median(perSecond),
        roundTripMs: found.roundTripMs,
      },
      versions: {
        node: found.node,
        postgres: server.version,
        postcommit: packageAt(new URL('../../package.json', import.meta.url)).version,
      },
      settings: {
        payloadBytes: options.payloadBytes,
        rounds: options.rounds,
        transactionsPerRound: setting.turns * setting.transactionsPerTurn,
        clients: setting.clients,
        ...machine(),
      },
    };
  };
  const shares = [0.5, 0.95];
  const measured = styles.flatMap((style) => shares.flatMap((share) => figure(style, share) ?? []));
  const comparisons = goals.flatMap(({ measured: style, baseline, goal }) =>
    shares.flatMap((share) => {
      const [ours, theirs] = [figure(style, share), figure(baseline, share)];
      if (!ours || !theirs) return [];
      const name = `${style.name} against ${baseline.name}, ${setting.name}, p${share * 100}`;
      return [{ ...compare(ours, theirs, goal), name }];
    }),
  );
  return [...measured, ...comparisons];
}
