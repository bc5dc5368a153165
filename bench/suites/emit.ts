import type { EmitTask } from '../emit/child.ts';
import { type ClientStyles, listOf, stylesOf } from '../emit/client-styles.ts';
import { clientPackageJson, clients, installClients } from '../emit/clients.ts';
import { startProxy } from '../emit/start-proxy.ts';
import { bareInsert, outboxTransactionAtOnce, plainEmit, type Style, styles, withoutEvent } from '../emit/styles.ts';
import { packageAt } from '../peers.ts';
import { makeReady } from '../ready.ts';
import { compare, type Goal, type Measurement } from '../report.ts';
import { forkChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import { type TurnReport, type TurnSetting, turnFigure, turnSettings } from '../turn-figures.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

const defaults = {
  loopbackTurns: 16,
  remoteTurns: 48,
  remoteDelayMicros: 430,
  // For each client, so that ten of them take minutes.
  clientLoopbackTurns: 8,
  clientRemoteTurns: 16,
};

interface Comparison {
  measured: Style;
  baseline: Style;
  goal: Goal | undefined;
}

/** Styles that are measured together, in one process. */
interface Group {
  /** Absent for the styles of `pg`. */
  client?: ClientStyles;
  styles: readonly Style[];
  goals(setting: TurnSetting): Comparison[];
}

/** What has to hold, by the name of the style and of what it is compared with. */
const goals: Comparison[] = [
  { measured: outboxTransactionAtOnce, baseline: withoutEvent, goal: { atMost: 1.02 } },
  { measured: plainEmit, baseline: bareInsert, goal: { atMost: 1.1, next: 1.05 } },
  ...styles
    .filter((style) => ![withoutEvent, outboxTransactionAtOnce].includes(style))
    .map((measured) => ({ measured, baseline: withoutEvent, goal: undefined })),
];

function clientGroup(client: ClientStyles): Group {
  const { withoutEvent, extraInsert, emit, outboxTransaction } = client;
  return {
    client,
    styles: listOf(client),
    goals: ({ delayMs }) => [
      { measured: emit, baseline: extraInsert, goal: { atMost: 1.1, next: 1.05 } },
      { measured: emit, baseline: withoutEvent, goal: undefined },
      ...(outboxTransaction
        ? [{ measured: outboxTransaction, baseline: withoutEvent, goal: delayMs > 0 ? { atMost: 1.02 } : undefined }]
        : []),
    ],
  };
}

const plainGroup: Group = { styles, goals: () => goals };
const clientGroups: readonly Group[] = clients.map(stylesOf).map(clientGroup);

/** What `--only` leaves of a group: named styles, or all of a named client. */
function chosenOf({ client, styles }: Group, options: BenchOptions): Style[] {
  if (client && options.only.includes(client.client.name)) return [...styles];
  return chosen(styles, options);
}

/**
 * What an event adds to a business transaction: the time from before its first statement to the answer to its COMMIT.
 * Styles take turns of some transactions each, in random order, so that drift hits all alike. No relay runs.
 */
export const emit: Suite = {
  name: 'emit',
  summary: 'what one event adds to a business transaction, on loopback and at 1 ms round trip',
  names: [plainGroup, ...clientGroups].flatMap(({ client, styles }) => [
    ...(client ? [client.client.name] : []),
    ...styles.map(({ name }) => name),
  ]),
  settings: defaults,

  async run(options) {
    const node = makeReady();
    const set = { ...defaults, ...options.overrides.emit };
    const plain = turnSettings(set);
    const perClient = turnSettings({
      ...set,
      loopbackTurns: set.clientLoopbackTurns,
      remoteTurns: set.clientRemoteTurns,
    });
    const groups = [plainGroup, ...clientGroups].filter((group) => chosenOf(group, options).length > 0);
    if (groups.some(({ client }) => client)) installClients();
    const server = await startServer(options.databaseUrl);
    try {
      const measurements: Measurement[] = [];
      for (const group of groups) {
        for (const setting of group.client ? perClient : plain) {
          console.error(`${group.client ? `${group.client.client.name}, ` : ''}${setting.name} ...`);
          const found = await measure(server, node, group, setting, options);
          measurements.push(...report(found, group, setting, server, options));
        }
      }
      return measurements;
    } finally {
      await server.stop();
    }
  },
};

async function measure(
  server: Server,
  node: string,
  group: Group,
  setting: TurnSetting,
  options: BenchOptions,
): Promise<TurnReport> {
  const database = `postcommit_bench_${process.pid}`;
  const connectionString = await server.createDatabase(database);
  const proxy = setting.delayMs > 0 ? await startProxy(node, connectionString, setting.delayMs) : undefined;
  try {
    const task: EmitTask = {
      connectionString,
      throughUrl: proxy?.url ?? connectionString,
      ...(group.client && { client: group.client.client.name }),
      styles: chosenOf(group, options).map(({ name }) => name),
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

function report(
  found: TurnReport,
  group: Group,
  setting: TurnSetting,
  server: Server,
  options: BenchOptions,
): Measurement[] {
  const figure = (style: Style, share: number): Measurement | undefined => {
    const measurement = turnFigure({ suite: 'emit', entrant: style.name, share }, found, setting, server, options);
    return measurement && { ...measurement, versions: { ...measurement.versions, ...versionOf(group) } };
  };
  const shares = [0.5, 0.95];
  const measured = group.styles.flatMap((style) => shares.flatMap((share) => figure(style, share) ?? []));
  const comparisons = group.goals(setting).flatMap(({ measured: style, baseline, goal }) =>
    shares.flatMap((share) => {
      const [ours, theirs] = [figure(style, share), figure(baseline, share)];
      if (!ours || !theirs) return [];
      const name = `${style.name} against ${baseline.name}, ${setting.name}, p${share * 100}`;
      return [{ ...compare(ours, theirs, goal), name }];
    }),
  );
  return [...measured, ...comparisons];
}

function versionOf({ client }: Group): Record<string, string> {
  if (!client) return {};
  const { packageName } = client.client;
  return { [packageName]: packageAt(clientPackageJson(packageName)).version };
}
