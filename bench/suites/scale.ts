import pg from 'pg';
import { migrate } from '../../src/database/migrate.ts';
import type { Backlog, Target } from '../contenders/contender.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { type Drained, drainOnce } from '../drain-once.ts';
import { fill } from '../drain-processes.ts';
import { machine } from '../machine.ts';
import { packageAt } from '../peers.ts';
import { median } from '../ratio.ts';
import { makeReady } from '../ready.ts';
import { compare, judged, type Measurement, percentile } from '../report.ts';
import { forkChild } from '../run-child.ts';
import type { ClaimsReport, ClaimsTask } from '../scale/claims.ts';
import { insertBacklog, insertBacklogs } from '../scale/history.ts';
import { counted, defaults, type Scene, type Sizes, scenesOf } from '../scale/scenes.ts';
import { type Server, startServer } from '../server.ts';
import { seededRandom, shuffled } from '../shuffled.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

/** How many claims of which size a round makes in each outbox: what a busy relay asks for, and an idle one. */
const batches = [
  { size: 2_000, claims: 10 },
  { size: 100, claims: 50 },
  { size: 1, claims: 150 },
];

const warmUpClaims = 3;
const databaseName = `postcommit_bench_${process.pid}`;

interface Run {
  server: Server;
  node: string;
  sizes: Sizes;
  options: BenchOptions;
}

const parts: { name: string; run(run: Run): Promise<Measurement[]> }[] = [
  { name: 'claims', run: claims },
  { name: 'snapshot', run: snapshot },
  { name: 'memory', run: memory },
];

/** Whether what lies in the tables, and who looks at them, costs those who deliver. */
export const scale: Suite = {
  name: 'scale',
  summary: 'claims beside ten million delivered events, a million in backoff, …; old snapshots; memory',
  names: parts.map(({ name }) => name),
  settings: defaults,

  async run(options) {
    const node = makeReady();
    const server = await startServer(options.databaseUrl);
    try {
      const sizes = { ...defaults, ...options.overrides.scale };
      const measurements: Measurement[] = [];
      for (const part of chosen(parts, options)) {
        console.error(`${part.name} ...`);
        measurements.push(...(await part.run({ server, node, sizes, options })));
      }
      return measurements;
    } finally {
      await server.stop();
    }
  },
};

/** The relay's own claims, in outboxes that differ only in what lies beside the backlog, one claim here, one there. */
async function claims(run: Run): Promise<Measurement[]> {
  const { server, node, sizes, options } = run;
  const [baseline, ...others] = scenesOf(sizes);
  const scenes = [baseline, ...others].map((scene, index) => ({ scene, database: `${databaseName}_${index}` }));
  try {
    const outboxes: Record<string, string> = {};
    for (const { scene, database } of scenes) {
      console.error(`  preparing ${scene.name} ...`);
      outboxes[scene.name] = await prepareOutbox(run, database, scene);
    }
    await fillOutboxes(Object.values(outboxes), options);
    const task: ClaimsTask = { outboxes, rounds: options.rounds, warmUpClaims, batches, seed: options.seed };
    const file = new URL('../scale/claims.ts', import.meta.url);
    const { interrupted } = options;
    const report = (await forkChild(node, file, task, {
      what: 'claims',
      timeoutMs: 600_000,
      interrupted,
    })) as ClaimsReport;
    return batches.flatMap(({ size }) => {
      const figure = (scene: Scene) => claimFigure(run, report, scene, size);
      const base = figure(baseline);
      return [base, ...others.flatMap((scene) => [figure(scene), compare(figure(scene), base, { atMost: 1.2 })])];
    });
  } finally {
    for (const { database } of scenes) await server.dropDatabase(database);
  }
}

async function prepareOutbox({ server, node, options }: Run, database: string, scene: Scene): Promise<string> {
  const connectionString = await server.createDatabase(database);
  const { payloadBytes, aggregates, interrupted } = options;
  const target: Target = { connectionString, backlog: { events: 0, payloadBytes, aggregates }, settings: {} };
  await fill(node, postcommit, target, interrupted);
  if (scene.partitions) await migrate({ connectionString, partitions: scene.partitions });
  await withClient(connectionString, (db) => scene.prepare(db));
  return connectionString;
}

/** The backlog for all claims, and then what would otherwise happen at some time during the measurement. */
async function fillOutboxes(
  urls: readonly string[],
  { payloadBytes, aggregates, rounds }: BenchOptions,
): Promise<void> {
  const events = batches.reduce((sum, { size, claims }) => sum + size * (claims * rounds + warmUpClaims), 0);
  const dbs = urls.map((connectionString) => new pg.Client({ connectionString }));
  try {
    for (const db of dbs) await db.connect();
    await insertBacklogs(dbs, { events, payloadBytes, aggregates });
    for (const db of dbs) await db.query('vacuum (analyze)');
    await dbs[0]?.query('checkpoint');
  } finally {
    for (const db of dbs) await db.end();
  }
}

function claimFigure(run: Run, { node, tookMs }: ClaimsReport, scene: Scene, size: number): Measurement {
  const rounds = tookMs[scene.name]?.[size] ?? [];
  const values = rounds.map((round) => percentile(round, 0.5));
  return {
    suite: 'scale',
    name: `claim of ${size.toLocaleString('en')} beside ${scene.name}`,
    value: median(values),
    unit: 'ms',
    rounds: values,
    details: { p95Ms: median(rounds.map((round) => percentile(round, 0.95))) },
    ...environment(run, node, { claimsPerRound: rounds[0]?.length ?? 0, historyPayload: 'some 30 bytes' }),
  };
}

/** Entries of settled events cannot be removed while some session might still look at them. */
async function snapshot(run: Run): Promise<Measurement[]> {
  const results: { holdSnapshot: boolean; rounds: Drained[] }[] = [false, true].map((holdSnapshot) => ({
    holdSnapshot,
    rounds: [],
  }));
  const random = seededRandom(run.options.seed);
  for (let round = 1; round <= run.options.rounds; round++) {
    for (const { holdSnapshot, rounds } of shuffled(results, random)) {
      const drained = await drain(run, run.sizes.snapshotEvents, holdSnapshot);
      rounds.push(drained);
      const rate = Math.round(drained.eventsPerSecond).toLocaleString('en');
      console.error(`  round ${round}, ${holdSnapshot ? 'with' : 'without'} an old snapshot: ${rate} events/s`);
    }
  }
  const [free, held] = results.map(({ holdSnapshot, rounds }): Measurement => {
    const rates = rounds.map(({ eventsPerSecond }) => eventsPerSecond);
    return {
      suite: 'scale',
      name: holdSnapshot ? 'drain while an old snapshot is held' : 'drain',
      value: median(rates),
      unit: 'events/s',
      rounds: rates,
      ...environment(run, rounds[0]?.node ?? '', { events: run.sizes.snapshotEvents }),
    };
  }) as [Measurement, Measurement];
  return [free, held, compare(held, free, { atLeast: 0.8 })];
}

interface MemoryReport {
  node: string;
  calls: number;
  drainMs: number;
  residentBytesMax: number;
}

/** The highest resident set of a relay's process over a long drain. */
async function memory(run: Run): Promise<Measurement[]> {
  const { server, node, options, sizes } = run;
  const { payloadBytes, aggregates, interrupted } = options;
  const backlog: Backlog = { events: sizes.memoryEvents, payloadBytes, aggregates };
  const connectionString = await server.createDatabase(databaseName);
  try {
    await fillWith(run, backlog, { connectionString, backlog, settings: {} });
    await withClient(connectionString, (db) => db.query('vacuum (analyze)').then(() => {}));
    const task = { connectionString, events: backlog.events };
    const file = new URL('../scale/memory-relay.mjs', import.meta.url);
    const timeoutMs = 120_000 + backlog.events * 5;
    const drained = (await forkChild(node, file, task, { what: 'the relay', timeoutMs, interrupted })) as MemoryReport;
    await withClient(connectionString, async (db) => {
      const remaining = await postcommit.remaining(db, backlog);
      if (remaining !== 0 || drained.calls !== backlog.events) throw new Error('Not every event was delivered once.');
    });
    const measurement: Measurement = {
      suite: 'scale',
      name: `memory of a relay that drains ${counted(backlog.events, 'events')}`,
      value: drained.residentBytesMax / 1e6,
      unit: 'MB',
      details: { eventsPerSecond: (backlog.events / drained.drainMs) * 1_000 },
      ...environment(run, drained.node, { events: backlog.events }),
    };
    return [judged(measurement, { atMost: 200 })];
  } finally {
    await server.dropDatabase(databaseName);
  }
}

async function fillWith({ node, options }: Run, backlog: Backlog, target: Target): Promise<void> {
  await fill(node, postcommit, { ...target, backlog: { ...backlog, events: 0 } }, options.interrupted);
  await withClient(target.connectionString, (db) => insertBacklog(db, backlog));
}

async function drain(run: Run, events: number, holdSnapshot: boolean): Promise<Drained> {
  const { server, node, options } = run;
  const { payloadBytes, aggregates, interrupted } = options;
  const backlog: Backlog = { events, payloadBytes, aggregates };
  return drainOnce({
    server,
    node,
    contender: postcommit,
    backlog,
    settings: {},
    processes: 1,
    interrupted,
    holdSnapshot,
    fill: (target) => fillWith(run, backlog, target),
  });
}

async function withClient(connectionString: string, work: (db: pg.Client) => Promise<void>): Promise<void> {
  const db = new pg.Client({ connectionString });
  await db.connect();
  try {
    await work(db);
  } finally {
    await db.end();
  }
}

function environment(
  { server, options }: Run,
  node: string,
  settings: Record<string, unknown>,
): Pick<Measurement, 'versions' | 'settings'> {
  const { version } = packageAt(postcommit.packageJson);
  const { payloadBytes, aggregates, rounds } = options;
  return {
    versions: { node, postgres: server.version, postcommit: version },
    settings: { payloadBytes, aggregates, rounds, ...settings, ...machine() },
  };
}
