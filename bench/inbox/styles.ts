import { randomBytes } from 'node:crypto';
import type pg from 'pg';

/** The part of Postcommit that is used here. The build is imported, not the source, so that no loader costs anything. */
export interface Postcommit {
  migrate(options: { connectionString: string }): Promise<unknown>;
  fromPg(pool: pg.Pool): unknown;
  createInbox(options: { db: unknown }): Inbox;
  createOutbox(options: { db: unknown }): Outbox;
}

interface Inbox {
  once(tx: pg.PoolClient, event: { consumer: string; eventId: string }, work: () => Promise<void>): Promise<unknown>;
  transaction(
    event: { consumer: string; eventId: string },
    work: (tx: pg.PoolClient) => Promise<void>,
  ): Promise<unknown>;
}

interface Outbox {
  transaction(work: (tx: pg.PoolClient) => Promise<unknown>): Promise<void>;
}

export interface Scene {
  pool: pg.Pool;
  inbox: Inbox;
  outbox: Outbox;
}

/** One way to book an event that was delivered. */
export interface Style {
  name: string;
  run(scene: Scene, event: number): Promise<void>;
}

const accounts = 1_000;

export const createTablesSql = `
create table accounts (id integer primary key, balance_cents bigint not null default 0);
insert into accounts (id) select n from generate_series(0, ${accounts - 1}) as n;
create table bookings (
  id         bigint primary key,
  account_id integer not null,
  cents      integer not null,
  booked_at  timestamptz not null default now()
);`;

/** What a consumer does with an event: three statements, each awaited. */
async function book(client: pg.PoolClient, event: number): Promise<void> {
  const [account, cents] = [event % accounts, 1 + (event % 9_000)];
  await client.query('select balance_cents from accounts where id = $1 for update', [account]);
  await client.query('update accounts set balance_cents = balance_cents + $2 where id = $1', [account, cents]);
  await client.query('insert into bookings (id, account_id, cents) values ($1, $2, $3)', [event, account, cents]);
}

/** BEGIN, the work, COMMIT: one after the other, as applications with a `pg` pool do. */
async function plainTransaction({ pool }: Scene, work: (client: pg.PoolClient) => Promise<unknown>): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    await work(client);
    await client.query('commit');
  } finally {
    client.release();
  }
}

/** As `emit` makes them (UUID version 7): neighbours in the index. */
function eventId(): string {
  const hex = Date.now().toString(16).padStart(12, '0') + randomBytes(10).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-7${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
}

const once = (scene: Scene, client: pg.PoolClient, event: number) =>
  scene.inbox.once(client, { consumer: 'accounts', eventId: eventId() }, () => book(client, event));

const style = (name: string, run: Style['run']): Style => ({ name, run });

/** The work alone: what the others are compared with. */
export const withoutInbox = style('no inbox', (scene, event) =>
  plainTransaction(scene, (client) => book(client, event)),
);

/** The statement that a consumer would write by itself. */
export const byHand = style('insert by hand', (scene, event) =>
  plainTransaction(scene, async (client) => {
    const { rowCount } = await client.query(
      `insert into postcommit.processed_events (consumer_name, event_id) values ('accounts', $1) on conflict do nothing`,
      [eventId()],
    );
    if (rowCount === 1) await book(client, event);
  }),
);

export const inPlainTransaction = style('once', (scene, event) =>
  plainTransaction(scene, (client) => once(scene, client, event)),
);

export const inOutboxTransaction = style('once in outbox.transaction', (scene, event) =>
  scene.outbox.transaction((tx) => once(scene, tx, event)),
);

/** What the consumers of brokers do. */
export const inboxTransaction = style('inbox.transaction', async (scene, event) => {
  await scene.inbox.transaction({ consumer: 'accounts', eventId: eventId() }, (tx) => book(tx, event));
});

/** What pipelining alone does. */
export const outboxTransaction = style('no inbox, outbox.transaction', (scene, event) =>
  scene.outbox.transaction((tx) => book(tx, event)),
);

export const styles: readonly Style[] = [
  withoutInbox,
  byHand,
  inPlainTransaction,
  outboxTransaction,
  inOutboxTransaction,
  inboxTransaction,
];
