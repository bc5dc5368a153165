// Runs transactions of every style in turns, in a process of its own. Answers by IPC.
import pg from 'pg';
import { createOrdersSql } from '../contenders/orders.ts';
import type { TurnReport } from '../turn-figures.ts';
import { roundTrip, type Turns, takeTurns, warmUpTurns } from '../turns.ts';
import { createBareTableSql, type Postcommit, payloadsOf, type Scene, type Style, styles } from './styles.ts';

export interface EmitTask extends Turns {
  /** For preparing, straight to the server. */
  connectionString: string;
  /** What the transactions use: the same, or through the delaying proxy. */
  throughUrl: string;
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

  // One more than there are clients, for the outbox's own statements.
  const pool = new pg.Pool({ connectionString: task.throughUrl, max: task.clients + 1 });
  const scene: Scene = { pool, outbox: createOutbox({ db: fromPg(pool) }), payloads: payloadsOf(task.payloadBytes) };
  const entrants = styles.filter(({ name }) => task.styles.includes(name));
  const roundTripMs = await roundTrip(pool);
  // One checkpoint, as a server has one in minutes: after it, whoever touches a page first writes all of it to the log,
  // and with one before each round that would be most transactions of all styles.
  await admin.query('checkpoint');
  const taken = entrants.map(({ name, run }) => ({ name, run: (order: number) => run(scene, order) }));
  const { rounds, transactions } = await takeTurns(pool, taken, task);
  await verify(admin, transactions, entrants, task);
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
  const emitting = entrants.filter(({ name }) => !/^bare|no event$/.test(name)).length;
  const expected = (warmUpTurns + task.rounds * task.turns) * task.transactionsPerTurn * emitting;
  const found = rows[0] as { orders: number; events: number; queued: number };
  if (found.orders !== orders || found.events !== expected || found.queued !== expected) {
    throw new Error(`${orders} orders and ${expected} events were to be there, but found ${JSON.stringify(found)}.`);
  }
}

const report = await measure(JSON.parse(process.argv[2] ?? '') as EmitTask);
process.send?.(report, () => process.exit(0));
