// Books events in every style in turns, in a process of its own. Answers by IPC.
import pg from 'pg';
import type { TurnReport } from '../turn-figures.ts';
import { roundTrip, type Turns, takeTurns, warmUpTurns } from '../turns.ts';
import { createTablesSql, type Postcommit, type Scene, type Style, styles } from './styles.ts';

export interface InboxTask extends Turns {
  /** For preparing, straight to the server. */
  connectionString: string;
  /** What the transactions use: the same, or through the delaying proxy. */
  throughUrl: string;
  styles: string[];
}

async function measure(task: InboxTask): Promise<TurnReport> {
  const { createInbox, createOutbox, fromPg, migrate }: Postcommit = await import(
    new URL('../../dist/index.js', import.meta.url).href
  );
  await migrate({ connectionString: task.connectionString });
  const admin = new pg.Client({ connectionString: task.connectionString });
  await admin.connect();
  await admin.query(createTablesSql);
  const pool = new pg.Pool({ connectionString: task.throughUrl, max: task.clients + 1 });
  const db = fromPg(pool);
  const scene: Scene = { pool, inbox: createInbox({ db }), outbox: createOutbox({ db }) };
  const entrants = styles.filter(({ name }) => task.styles.includes(name));
  const roundTripMs = await roundTrip(pool);
  await admin.query('checkpoint');
  const taken = entrants.map(({ name, run }) => ({ name, run: (event: number) => run(scene, event) }));
  const { rounds, transactions } = await takeTurns(pool, taken, task);
  await verify(admin, transactions, entrants, task);
  await pool.end();
  await admin.end();
  return { node: process.version, roundTripMs, rounds };
}

/** Every event was booked once, and recorded in every style with an inbox. */
async function verify(admin: pg.Client, events: number, entrants: readonly Style[], task: InboxTask): Promise<void> {
  const { rows } = await admin.query(
    `select (select count(*) from bookings)::int as bookings, (select sum(balance_cents) from accounts)::text as balances,
            (select sum(cents) from bookings)::text as cents,
            (select count(*) from postcommit.processed_events)::int as records`,
  );
  const recording = entrants.filter(({ name }) => !name.startsWith('no inbox')).length;
  const expected = (warmUpTurns + task.rounds * task.turns) * task.transactionsPerTurn * recording;
  const { bookings, balances, cents, records } = rows[0];
  if (bookings !== events || balances !== cents || records !== expected) {
    throw new Error(
      `${events} bookings and ${expected} records were to be there, but found ${JSON.stringify(rows[0])}.`,
    );
  }
}

const report = await measure(JSON.parse(process.argv[2] ?? '') as InboxTask);
process.send?.(report, () => process.exit(0));
