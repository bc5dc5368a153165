// Runs transactions of every style in turns, in a process of its own. Answers by IPC.
import pg from 'pg';
import { createOrdersSql } from '../contenders/orders.ts';
import { seededRandom, shuffled } from '../shuffled.ts';
import { createLinesSql, listOf, stylesOf } from './client-styles.ts';
import { clients } from './clients.ts';
import { createBareTableSql, type Postcommit, payloadsOf, type Scene, type Style, styles } from './styles.ts';

export interface EmitTask {
  /** For preparing, straight to the server. */
  connectionString: string;
  /** What the transactions use: the same, or through the delaying proxy. */
  throughUrl: string;
  /** The client whose adapter is measured. Without it, the styles are those of `pg`. */
  client?: string;
  styles: string[];
  clients: number;
  rounds: number;
  turns: number;
  transactionsPerTurn: number;
  payloadBytes: number;
  seed: number;
}

export interface EmitReport {
  node: string;
  /** Of `select 1`, the median. */
  roundTripMs: number;
  /** By style, for each round: how long each transaction took, and how long all turns took together. */
  rounds: Record<string, { latenciesMs: number[]; busyMs: number }[]>;
}

/**
 * Between two turns, so that what one style leaves to the background (a NOTIFY) does not fall into the next. Spent on
 * round trips: a pause would let the processors go to sleep, and each turn would measure how they wake up.
 */
const betweenTurnsMs = 15;
const warmUpTurns = 10;

async function measure(task: EmitTask): Promise<EmitReport> {
  const { createOutbox, fromPg, migrate }: Postcommit = await import(
    new URL('../../dist/index.js', import.meta.url).href
  );
  await migrate({ connectionString: task.connectionString });
  const admin = new pg.Client({ connectionString: task.connectionString });
  await admin.connect();
  await admin.query(createOrdersSql);
  await admin.query(createBareTableSql);
  await admin.query(createLinesSql);

  // One more than there are clients, for the outbox's own statements.
  const connections = task.clients + 1;
  const pool = new pg.Pool({ connectionString: task.throughUrl, max: connections });
  const benchClient = clients.find(({ name }) => name === task.client);
  const client = await benchClient?.open(task.throughUrl, connections);
  const scene: Scene = {
    pool,
    ...(client && { client }),
    outbox: createOutbox({ db: client?.db ?? fromPg(pool) }),
    payloads: payloadsOf(task.payloadBytes),
  };
  const known = benchClient ? listOf(stylesOf(benchClient)) : styles;
  const entrants = known.filter(({ name }) => task.styles.includes(name));
  const roundTripMs = await roundTrip(pool);
  const next = orderNumbers();
  const random = seededRandom(task.seed);
  // One checkpoint, as a server has one in minutes: after it, whoever touches a page first writes all of it to the log,
  // and with one before each round that would be most transactions of all styles.
  await admin.query('checkpoint');
  // Not counted: connections, plans and the JIT warm up.
  for (let turn = 0; turn < warmUpTurns; turn++) await oneTurn(scene, shuffled(entrants, random), task, next);
  const rounds: EmitReport['rounds'] = Object.fromEntries(entrants.map(({ name }) => [name, []]));
  for (let round = 0; round < task.rounds; round++) {
    for (const { name } of entrants) rounds[name]?.push({ latenciesMs: [], busyMs: 0 });
    for (let turn = 0; turn < task.turns; turn++) {
      for (const [name, { latenciesMs, busyMs }] of await oneTurn(scene, shuffled(entrants, random), task, next)) {
        const sum = rounds[name]?.[round];
        if (!sum) continue;
        sum.latenciesMs.push(...latenciesMs);
        sum.busyMs += busyMs;
      }
    }
  }
  await verify(admin, next.drawn(), entrants, task);
  await client?.close();
  await pool.end();
  await admin.end();
  return { node: process.version, roundTripMs, rounds };
}

function orderNumbers(): { next(): number; drawn(): number } {
  let last = 0;
  return { next: () => ++last, drawn: () => last };
}

/** Some transactions of every style. The caller shuffles, so that no style always follows the same one. */
async function oneTurn(
  scene: Scene,
  inOrder: readonly Style[],
  { clients, transactionsPerTurn }: EmitTask,
  numbers: { next(): number },
): Promise<Map<string, { latenciesMs: number[]; busyMs: number }>> {
  const results = new Map<string, { latenciesMs: number[]; busyMs: number }>();
  for (const style of inOrder) {
    await keepBusy(scene.pool);
    const latenciesMs: number[] = [];
    let left = transactionsPerTurn;
    const client = async () => {
      while (left-- > 0) {
        const startedAtMs = performance.now();
        await style.run(scene, numbers.next());
        latenciesMs.push(performance.now() - startedAtMs);
      }
    };
    const startedAtMs = performance.now();
    await Promise.all(Array.from({ length: clients }, client));
    results.set(style.name, { latenciesMs, busyMs: performance.now() - startedAtMs });
  }
  return results;
}

async function keepBusy(pool: pg.Pool): Promise<void> {
  const until = performance.now() + betweenTurnsMs;
  while (performance.now() < until) await pool.query('select 1');
}

async function roundTrip(pool: pg.Pool): Promise<number> {
  const client = await pool.connect();
  const tookMs: number[] = [];
  for (let i = 0; i < 500; i++) {
    const startedAtMs = performance.now();
    await client.query('select 1');
    tookMs.push(performance.now() - startedAtMs);
  }
  client.release();
  return tookMs.sort((a, b) => a - b)[250] as number;
}

/** Every order was committed, and every event of a style that emits. */
async function verify(admin: pg.Client, orders: number, entrants: readonly Style[], task: EmitTask): Promise<void> {
  const { rows } = await admin.query(
    `select (select count(*) from orders)::int as orders,
            (select count(*) from postcommit.outbox_events)::int as events,
            (select count(*) from postcommit.outbox_queue)::int as queued`,
  );
  const emitting = entrants.filter(({ emits }) => emits).length;
  const expected = (warmUpTurns + task.rounds * task.turns) * task.transactionsPerTurn * emitting;
  const found = rows[0] as { orders: number; events: number; queued: number };
  if (found.orders !== orders || found.events !== expected || found.queued !== expected) {
    throw new Error(`${orders} orders and ${expected} events were to be there, but found ${JSON.stringify(found)}.`);
  }
}

const report = await measure(JSON.parse(process.argv[2] ?? '') as EmitTask);
process.send?.(report, () => process.exit(0));
