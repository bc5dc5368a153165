import pg from 'pg';
import { monotonicMs } from '../clock.ts';
import { aggregateOf, type Contender, chunks, payloadOf } from './contender.ts';
import { insertOrderSql, orderValues } from './orders.ts';

interface Event {
  type: string;
  aggregate: [string, number];
  payload: unknown;
}

/** The part of Postcommit that is used here. The build is imported, not the source, so that no loader costs anything. */
interface Postcommit {
  migrate(options: { connectionString: string }): Promise<unknown>;
  fromPg(pool: pg.Pool): unknown;
  createOutbox(options: { db: unknown }): {
    transaction(statements: { text: string; values: unknown[] }[], event: Event): Promise<unknown>;
  };
  createRelay(options: {
    [option: string]: unknown;
    connectionString: string;
    handlers: Record<string, Record<string, (event: { seq: string; payload: unknown }) => Promise<void>>>;
  }): { start(): Promise<void>; stop(): Promise<void> };
}

export const load = (): Promise<Postcommit> => import(new URL('../../dist/index.js', import.meta.url).href);

/**
 * Ourselves with default options: polling lane, order per aggregate, delivery records written. `--set` takes any numeric
 * option of the relay.
 */
export const postcommit: Contender = {
  name: 'postcommit',
  packageJson: new URL('../../package.json', import.meta.url),
  settings: {},
  claimStatement: /outbox_queue[\s\S]*skip locked|\.claim_(?:one|next|many)\s*\(/i,
  // `claim_many` describes itself in a JSON column of its first row; `claim_one` and `claim_next` take one event or none.
  readClaim(rows) {
    const columns = (rows[0] ?? []) as unknown[];
    const scan = columns.find((value): value is string => typeof value === 'string' && value.includes('"examined"'));
    if (scan === undefined && columns.length < 15) return { claimed: columns[0] ? 1 : 0, examined: columns[0] ? 1 : 0 };
    if (scan === undefined) return { claimed: columns[3] ? 1 : 0, examined: Number(columns[0] ?? 0) };
    const { seqs, examined } = JSON.parse(scan) as { seqs: string | null; examined: number };
    return { claimed: seqs ? seqs.split(',').length : 0, examined };
  },

  async prepare({ connectionString }) {
    await (await load()).migrate({ connectionString });
  },

  async fill({ connectionString, backlog }) {
    const client = new pg.Client({ connectionString });
    await client.connect();
    for (const indexes of chunks(backlog)) {
      await client.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         select 'order', aggregate_id, 'order.created', payload::jsonb
         from unnest($1::text[], $2::text[]) as given (aggregate_id, payload)`,
        [
          indexes.map((index) => aggregateOf(index, backlog.aggregates)),
          indexes.map((index) => JSON.stringify(payloadOf(index, backlog.payloadBytes))),
        ],
      );
    }
    await client.end();
  },

  async start({ connectionString, settings }, onEvent) {
    const { createRelay } = await load();
    const relay = createRelay({
      ...settings,
      connectionString,
      handlers: { 'order.created': { noop: async (event) => onEvent(event.seq, event) } },
    });
    await relay.start();
    return { stop: () => relay.stop() };
  },

  orderOf: (event) => (event as { payload: { orderId: number } }).payload.orderId,

  async connectEmitter({ connectionString, backlog }) {
    const { createOutbox, fromPg } = await load();
    const pool = new pg.Pool({ connectionString });
    const outbox = createOutbox({ db: fromPg(pool) });
    return {
      async emit(order) {
        const event = {
          type: 'order.created',
          aggregate: ['order', order] as [string, number],
          payload: payloadOf(order, backlog.payloadBytes),
        };
        const commitSentAtMs = monotonicMs();
        await outbox.transaction([{ text: insertOrderSql, values: orderValues(order) }], event);
        return { commitSentAtMs, committedAtMs: monotonicMs() };
      },
      stop: () => pool.end(),
    };
  },

  async unsettled(db, ids) {
    const { rows } = await db.query(
      `select exists (
         select from unnest($1::bigint[]) as recent (seq)
         join postcommit.outbox_queue using (seq)
       ) as found`,
      [ids],
    );
    return rows[0]?.found === true;
  },

  // Counted in the delivery records and not in the queue alone: a dead letter also leaves the queue.
  async remaining(db, backlog) {
    const { rows } = await db.query(
      `select (select count(*) from postcommit.outbox_queue)::int as queued,
              (select coalesce(sum(upper(range) - lower(range)), 0)
               from postcommit.outbox_deliveries, unnest(seqs) as range)::int as delivered`,
    );
    return Math.max(Number(rows[0]?.queued), backlog.events - Number(rows[0]?.delivered));
  },
};
