// Runs transactions of every style in turns, in a process of its own. Answers by IPC.
import pg from 'pg';
import { createOrdersSql } from '../contenders/orders.ts';
import type { TurnReport } from '../turn-figures.ts';
import { roundTrip, type Turns, takeTurns, warmUpTurns } from '../turns.ts';
import { createLinesSql, listOf, stylesOf } from './client-styles.ts';
import { clients } from './clients.ts';
import { createBareTableSql, type Postcommit, payloadsOf, type Scene, type Style, styles } from './styles.ts';

export interface EmitTask extends Turns {
  /** For preparing, straight to the server. */
  connectionString: string;
  /** What the transactions use: the same, or through the delaying proxy. */
  throughUrl: string;
  /** The client whose adapter is measured. Without it, the styles are those of `pg`. */
  client?: string;
  styles: string[];
  payloadBytes: number;
}

async function measure(task: EmitTask): Promise<TurnReport> {
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
  // One checkpoint, as a server has one in minutes: after it, whoever touches a page first writes all of it to the log,
  // and with one before each round that would be most transactions of all styles.
  await admin.query('checkpoint');
  const taken = entrants.map(({ name, run }) => ({ name, run: (order: number) => run(scene, order) }));
  const { rounds, transactions } = await takeTurns(pool, taken, task);
  await verify(admin, transactions, entrants, task);
  await client?.close();
  await pool.end();
  await admin.end();
  return { node: process.version, roundTripMs, rounds };
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
