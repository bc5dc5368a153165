import type { EmitTask } from '../emit/child.ts';
import { startProxy } from '../emit/start-proxy.ts';
import { bareInsert, outboxTransactionAtOnce, plainEmit, type Style, styles, withoutEvent } from '../emit/styles.ts';
import { makeReady } from '../ready.ts';
import { compare, type Goal, type Measurement } from '../report.ts';
import { forkChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import { type TurnReport, type TurnSetting, turnFigure, turnSettings } from '../turn-figures.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

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
    const settings = turnSettings({ ...defaults, ...options.overrides.emit });
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

async function measure(server: Server, node: string, setting: TurnSetting, options: BenchOptions): Promise<TurnReport> {
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
    return (await forkChild(node, file, task, { what: 'emit', timeoutMs: 600_000, interrupted })) as TurnReport;
  } finally {
    proxy?.stop();
    await server.dropDatabase(database);
  }
}

function report(found: TurnReport, setting: TurnSetting, server: Server, options: BenchOptions): Measurement[] {
  const figure = (style: Style, share: number) =>
    turnFigure({ suite: 'emit', entrant: style.name, share }, found, setting, server, options);
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
