import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { doorbellChannel } from '../../src/database/identifier.ts';
import { migrate } from '../../src/database/migrate.ts';
import { monotonicMs } from '../clock.ts';
import { machine, warnIfBusy } from '../machine.ts';
import type { RelayReport, RelayTask } from '../notify-trigger/relay.ts';
import type { WriterStyle, WritersReport, WritersTask } from '../notify-trigger/writers.ts';
import { build, packageAt } from '../peers.ts';
import { median } from '../ratio.ts';
import { compare, judged, type Measurement, percentile } from '../report.ts';
import { forkChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import type { BenchOptions, Suite } from './suite.ts';

const defaults = { writers: 8, turns: 10, transactionsPerTurn: 500, inserts: 300 };

const plain: WriterStyle = { name: 'plain INSERT', schema: 'plain', trigger: false };
const withTrigger: WriterStyle = { name: 'plain INSERT with the trigger', schema: 'notifying', trigger: true };
const turnedOff: WriterStyle = {
  name: 'plain INSERT with the trigger, turned off in the session',
  schema: 'turned_off',
  trigger: true,
  turnedOff: true,
};
const styles = [plain, withTrigger, turnedOff];

/** What `npx postcommit migrate --notify-trigger` costs concurrent writers, and how soon a relay has what they insert. */
export const notifyTrigger: Suite = {
  name: 'notify-trigger',
  summary: 'what the trigger for plain INSERTs costs 8 writers, and the time from INSERT to handler',
  names: ['writers', 'insert-to-handler'],
  settings: defaults,

  async run(options) {
    warnIfBusy();
    build();
    const server = await startServer(options.databaseUrl);
    const database = `postcommit_bench_${process.pid}`;
    try {
      const connectionString = await server.createDatabase(database);
      for (const { schema, trigger } of styles) await migrate({ connectionString, schema, notifyTrigger: trigger });
      const isChosen = (name: string) => options.only.length === 0 || options.only.includes(name);
      return [
        ...(isChosen('writers') ? await measureWriters(connectionString, server, options) : []),
        ...(isChosen('insert-to-handler') ? await measureInserts(connectionString, server, options) : []),
      ];
    } finally {
      await server.dropDatabase(database);
      await server.stop();
    }
  },
};

const settingsOf = (options: BenchOptions) => ({ ...defaults, ...options.overrides['notify-trigger'] });

function run(file: string, task: object, options: BenchOptions, onReady?: () => void): Promise<unknown> {
  return forkChild(process.execPath, new URL(`../notify-trigger/${file}`, import.meta.url), task, {
    what: `notify-trigger ${file}`,
    timeoutMs: 300_000,
    interrupted: options.interrupted,
    ...(onReady && { onNote: onReady }),
  });
}

async function measureWriters(connectionString: string, server: Server, options: BenchOptions): Promise<Measurement[]> {
  const { writers, turns, transactionsPerTurn } = settingsOf(options);
  // As a relay does: without a session that listens, NOTIFY has nobody to signal.
  const listener = new pg.Client({ connectionString });
  await listener.connect();
  for (const { schema } of styles) await listener.query(`listen ${doorbellChannel(schema)}`);
  await listener.query('checkpoint');
  const { rounds, payloadBytes, seed } = options;
  const task: WritersTask = {
    connectionString,
    styles,
    writers,
    rounds,
    turns,
    transactionsPerTurn,
    payloadBytes,
    seed,
  };
  const found = (await run('writers.ts', task, options)) as WritersReport;
  await listener.end();
  const figures = styles.map(({ name }): Measurement => {
    const perSecond = found.perSecond[name] ?? [];
    return {
      ...describe(server, found.node),
      name,
      value: median(perSecond),
      unit: 'commits/s',
      rounds: perSecond,
      settings: { payloadBytes, rounds, writers, transactionsPerRound: turns * transactionsPerTurn, ...machine() },
    };
  });
  const [baseline, ...others] = figures as [Measurement, ...Measurement[]];
  return [...figures, ...others.map((figure) => compare(figure, baseline))];
}

/** From the answer to a plain INSERT to the first line of the handler, of a relay that polls once a minute. */
async function measureInserts(connectionString: string, server: Server, options: BenchOptions): Promise<Measurement[]> {
  const { inserts } = settingsOf(options);
  const client = new pg.Client({ connectionString });
  await client.connect();
  const rounds: number[][] = [];
  let node = '';
  for (let round = 0; round < options.rounds; round++) {
    await client.query(`truncate notifying.outbox_events, notifying.outbox_queue, notifying.outbox_deliveries`);
    const task: RelayTask = { connectionString, schema: 'notifying', events: inserts };
    let handled: Promise<unknown> | undefined;
    await new Promise<void>((ready, reject) => {
      handled = run('relay.ts', task, options, ready);
      handled.catch(reject);
    });
    const answeredAtMs: number[] = [];
    for (let number = 0; number < inserts; number++) {
      await sleep(10 + Math.random() * 20);
      await client.query(
        `insert into notifying.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         values ('order', $1::text, 'inserted', jsonb_build_object('number', $1::integer))`,
        [number],
      );
      answeredAtMs.push(monotonicMs());
    }
    const report = (await handled) as RelayReport;
    node = report.node;
    const entered = new Map(report.entered);
    if (entered.size !== inserts) throw new Error(`${entered.size} of ${inserts} events were delivered.`);
    rounds.push(answeredAtMs.map((ms, number) => (entered.get(number) ?? Number.NaN) - ms));
  }
  await client.end();
  return [0.5, 0.95].map((share): Measurement => {
    const values = rounds.map((latenciesMs) => percentile(latenciesMs, share));
    const figure = {
      ...describe(server, node),
      name: `plain INSERT to handler, p${share * 100}`,
      value: median(values),
      unit: 'ms',
      rounds: values,
      settings: { rounds: options.rounds, insertsPerRound: inserts, pollIntervalMs: 60_000, ...machine() },
    };
    return share === 0.95 ? judged(figure, { atMost: 100 }) : figure;
  });
}

function describe(server: Server, node: string): Pick<Measurement, 'suite' | 'versions'> {
  const { version } = packageAt(new URL('../../package.json', import.meta.url));
  return { suite: 'notify-trigger', versions: { node, postgres: server.version, postcommit: version } };
}
