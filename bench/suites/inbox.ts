import { startProxy } from '../emit/start-proxy.ts';
import type { InboxTask } from '../inbox/child.ts';
import {
  byHand,
  inboxTransaction,
  inOutboxTransaction,
  inPlainTransaction,
  outboxTransaction,
  type Style,
  styles,
  withoutInbox,
} from '../inbox/styles.ts';
import { makeReady } from '../ready.ts';
import { compare, type Goal, type Measurement } from '../report.ts';
import { forkChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import { type TurnReport, type TurnSetting, turnFigure, turnSettings } from '../turn-figures.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

const defaults = { loopbackTurns: 10, remoteTurns: 16, remoteDelayMicros: 430 };

/** What has to hold for p50. */
const goals: { measured: Style; baseline: Style; goal?: Goal }[] = [
  { measured: inboxTransaction, baseline: withoutInbox, goal: { atMost: 1.15 } },
  { measured: inOutboxTransaction, baseline: withoutInbox, goal: { atMost: 1.15 } },
  { measured: inPlainTransaction, baseline: byHand, goal: { atMost: 1.05 } },
  { measured: inPlainTransaction, baseline: withoutInbox },
  { measured: inOutboxTransaction, baseline: outboxTransaction },
];

/** What `inbox.once` adds to a transaction that processes an event, from before its first statement to the answer to COMMIT. */
export const inbox: Suite = {
  name: 'inbox',
  summary: 'what inbox.once adds to the transaction of a consumer, on loopback and at 1 ms round trip',
  names: styles.map(({ name }) => name),
  settings: defaults,

  async run(options) {
    const node = makeReady();
    const server = await startServer(options.databaseUrl);
    try {
      const measurements: Measurement[] = [];
      for (const setting of turnSettings({ ...defaults, ...options.overrides.inbox })) {
        console.error(`${setting.name} ...`);
        measurements.push(...report(await measure(server, node, setting, options), setting, server, options));
      }
      return measurements;
    } finally {
      await server.stop();
    }
  },
};

async function measure(server: Server, node: string, setting: TurnSetting, options: BenchOptions): Promise<TurnReport> {
  const database = `postcommit_bench_${process.pid}`;
  const connectionString = await server.createDatabase(database);
  const proxy = setting.delayMs > 0 ? await startProxy(node, connectionString, setting.delayMs) : undefined;
  try {
    const task: InboxTask = {
      connectionString,
      throughUrl: proxy?.url ?? connectionString,
      styles: chosen(styles, options).map(({ name }) => name),
      rounds: options.rounds,
      seed: options.seed,
      ...setting,
    };
    const file = new URL('../inbox/child.ts', import.meta.url);
    const { interrupted } = options;
    return (await forkChild(node, file, task, { what: 'inbox', timeoutMs: 600_000, interrupted })) as TurnReport;
  } finally {
    proxy?.stop();
    await server.dropDatabase(database);
  }
}

function report(found: TurnReport, setting: TurnSetting, server: Server, options: BenchOptions): Measurement[] {
  const figure = (style: Style, share: number) =>
    turnFigure({ suite: 'inbox', entrant: style.name, share }, found, setting, server, options);
  const shares = [0.5, 0.95];
  const measured = styles.flatMap((style) => shares.flatMap((share) => figure(style, share) ?? []));
  const comparisons = goals.flatMap(({ measured: style, baseline, goal }) =>
    shares.flatMap((share) => {
      const [ours, theirs] = [figure(style, share), figure(baseline, share)];
      if (!ours || !theirs) return [];
      const name = `${style.name} against ${baseline.name}, ${setting.name}, p${share * 100}`;
      return [{ ...compare(ours, theirs, share === 0.5 ? goal : undefined), name }];
    }),
  );
  return [...measured, ...comparisons];
}
