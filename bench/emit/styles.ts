import type pg from 'pg';
import { payloadOf } from '../contenders/contender.ts';
import { insertOrderSql, orderValues } from '../contenders/orders.ts';
import type { OpenClient } from './clients.ts';

/** The part of Postcommit that is used here. The build is imported, not the source, so that no loader costs anything. */
export interface Postcommit {
  migrate(options: { connectionString: string }): Promise<unknown>;
  fromPg(pool: pg.Pool): unknown;
  createOutbox(options: { db: unknown }): Outbox;
}

interface Event {
  type: string;
  aggregate: [string, number];
  payload: unknown;
}

interface Outbox {
  emit(tx: pg.PoolClient, event: Event): Promise<string>;
  transaction(work: (tx: pg.PoolClient, emit: (event: Event) => Promise<string>) => Promise<void>): Promise<void>;
  transaction(statements: readonly { text: string; values?: unknown[] }[], event: Event): Promise<string>;
}

export interface Scene {
  pool: pg.Pool;
  outbox: Outbox;
  payloads: unknown[];
  /** The one whose adapter is measured. The styles of this file use the pool. */
  client?: OpenClient;
}

/** One way to write an order and, in the same transaction, tell of it. */
export interface Style {
  name: string;
  /** Whether it writes an event. */
  emits: boolean;
  run(scene: Scene, order: number): Promise<void>;
}

/** What the extra row of `bare insert` goes into: as little as a table of events can be. */
export const createBareTableSql = `
create table bare_events (
  id         bigint generated always as identity primary key,
  order_id   bigint not null,
  payload    jsonb not null,
  created_at timestamptz not null default now()
)`;

/** What the application has at hand anyway; making it is not what is measured. */
export const payloadsOf = (payloadBytes: number): unknown[] =>
  Array.from({ length: 1_000 }, (_, order) => payloadOf(order, payloadBytes));

export const eventOf = (order: number, { payloads }: Scene): Event => ({
  type: 'order.created',
  aggregate: ['order', order],
  payload: payloads[order % payloads.length],
});

export const payloadJson = (order: number, { payloads }: Scene): string =>
  JSON.stringify(payloads[order % payloads.length]);

/** BEGIN, the order, whatever `more` sends, COMMIT: one after the other, as applications with a `pg` pool do. */
async function plainTransaction(
  { pool }: Scene,
  order: number,
  more?: (client: pg.PoolClient) => Promise<unknown>,
): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    await client.query(insertOrderSql, orderValues(order));
    await more?.(client);
    await client.query('commit');
  } finally {
    client.release();
  }
}

export const insertBareSql = 'insert into bare_events (order_id, payload) values ($1, $2)';

const style = (name: string, run: Style['run'], emits = true): Style => ({ name, emits, run });

/** A transaction without any event: what all others are compared with. */
export const withoutEvent = style('no event', (scene, order) => plainTransaction(scene, order), false);

/** A second INSERT into a table that nobody reads: what plain `emit` is compared with. */
export const bareInsert = style(
  'bare insert',
  (scene, order) =>
    plainTransaction(scene, order, (client) => client.query(insertBareSql, [order, payloadJson(order, scene)])),
  false,
);

export const outboxTransaction = style('outbox.transaction', (scene, order) =>
  scene.outbox.transaction(async (tx, emit) => {
    await tx.query(insertOrderSql, orderValues(order));
    await emit(eventOf(order, scene));
  }),
);

/** The same with the statements known beforehand: everything travels as one message. */
export const outboxTransactionAtOnce = style('outbox.transaction(statements)', async (scene, order) => {
  await scene.outbox.transaction([{ text: insertOrderSql, values: orderValues(order) }], eventOf(order, scene));
});

export const plainEmit = style('emit', (scene, order) =>
  plainTransaction(scene, order, (client) => scene.outbox.emit(client, eventOf(order, scene))),
);

const others: readonly Style[] = [
  style(
    'outbox.transaction, no event',
    (scene, order) =>
      scene.outbox.transaction(async (tx) => {
        await tx.query(insertOrderSql, orderValues(order));
      }),
    false,
  ),
  style('SQL function emit', (scene, order) =>
    plainTransaction(scene, order, (client) =>
      client.query(`select postcommit.emit('order.created', 'order', $1, $2)`, [
        String(order),
        payloadJson(order, scene),
      ]),
    ),
  ),
  style('SQL insert into outbox_events', (scene, order) =>
    plainTransaction(scene, order, (client) =>
      client.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         values ('order', $1, 'order.created', $2)`,
        [String(order), payloadJson(order, scene)],
      ),
    ),
  ),
];

export const styles: readonly Style[] = [
  withoutEvent,
  bareInsert,
  outboxTransactionAtOnce,
  outboxTransaction,
  plainEmit,
  ...others,
];
