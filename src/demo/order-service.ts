import type pg from 'pg';
import { fromPg } from '../adapters/pg.ts';
import type { Outbox } from '../emit/outbox.ts';
import { createOutbox } from '../emit/outbox.ts';
import type { DemoSchemas, DemoTables } from './order-service-tables.ts';
import { demoTables } from './order-service-tables.ts';

export type OrderEventType = 'order.created' | 'order.paid' | 'order.shipped';

/** The payload of every event of an order. */
export interface OrderPayload {
  orderId: string;
  /** The number of committed changes of the order, including this one. */
  revision: number;
  totalCents: number | string;
}

interface OrderRow {
  id: string;
  status: string;
  revision: number;
  total_cents: number;
}

/** Rolls a transaction back on purpose. */
class ChangedMind extends Error {}

/** Few open orders, so that writers change the same order concurrently. */
const openOrdersMax = 40;

/**
 * A small order service. Each change of an order and its event are one transaction. One transaction in eight rolls back after
 * it has emitted.
 */
export class OrderService {
  readonly #pool: pg.Pool;
  readonly #tables: DemoTables;
  readonly #outbox: Outbox<pg.PoolClient>;
  readonly #rolledBackShare: number;
  readonly #open: string[] = [];
  /** Events in transactions that committed. */
  committed = 0;
  /** The ids of events in rolled back transactions. They must never be delivered. */
  readonly rolledBackIds: string[] = [];
  poisonId: string | undefined;

  constructor(pool: pg.Pool, schemas: DemoSchemas, rolledBackShare = 1 / 8) {
    this.#pool = pool;
    this.#tables = demoTables(schemas);
    this.#outbox = createOutbox({ db: fromPg<pg.PoolClient>(pool), schema: schemas.outbox });
    this.#rolledBackShare = rolledBackShare;
  }

  /** Places a new order, or advances an open one. */
  async work(): Promise<void> {
    const open = this.#open.length;
    if (open === 0 || (open < openOrdersMax && Math.random() < 0.5)) await this.placeOrder();
    else await this.advanceOrder(this.#open[Math.floor(Math.random() * open)] as string);
  }

  /** Uses `outbox.transaction`, which opens the transaction and sends the event together with COMMIT. */
  async placeOrder(changesMind = Math.random() < this.#rolledBackShare): Promise<string | undefined> {
    let eventId = '';
    try {
      const order = await this.#outbox.transaction(async (tx, emit) => {
        const { rows } = await tx.query<OrderRow>(
          `insert into ${this.#tables.orders} (status, total_cents) values ('created', $1) returning *`,
          [500 + Math.floor(Math.random() * 20_000)],
        );
        const row = rows[0] as OrderRow;
        eventId = await emit(eventOf(row));
        if (changesMind) throw new ChangedMind();
        return row;
      });
      this.committed++;
      this.#open.push(order.id);
      return order.id;
    } catch (error) {
      if (!(error instanceof ChangedMind)) throw error;
      this.rolledBackIds.push(eventId);
      return undefined;
    }
  }

  /** Many orders in one transaction, their events in one statement. */
  async importOrders(amount: number): Promise<void> {
    const orders = await this.#outbox.transaction(async (tx, emit) => {
      const { rows } = await tx.query<OrderRow>(
        `insert into ${this.#tables.orders} (status, total_cents)
         select 'created', 1000 + n from generate_series(1, $1::integer) n returning *`,
        [amount],
      );
      await emit(rows.map((row) => eventOf(row)));
      return rows;
    });
    this.committed += orders.length;
    this.#open.push(...orders.map(({ id }) => id));
  }

  /** Uses `outbox.emit` in a transaction of its own. Returns the id of the event if it committed. */
  async advanceOrder(
    orderId: string,
    options: { changesMind?: boolean; totalCents?: string } = {},
  ): Promise<string | undefined> {
    const { changesMind = Math.random() < this.#rolledBackShare, ...instead } = options;
    const client = await this.#pool.connect();
    try {
      await client.query('begin');
      const { rows } = await client.query<OrderRow>(
        `update ${this.#tables.orders}
            set revision = revision + 1, status = case status when 'created' then 'paid' else 'shipped' end
          where id = $1 and status <> 'shipped' returning *`,
        [orderId],
      );
      const order = rows[0];
      const eventId = order && (await this.#outbox.emit(client, eventOf(order, instead)));
      if (eventId === undefined || changesMind) {
        await client.query('rollback');
        if (eventId !== undefined) this.rolledBackIds.push(eventId);
        return undefined;
      }
      await client.query('commit');
      this.committed++;
      if (order?.status === 'shipped') this.#close(orderId);
      return eventId;
    } catch (error) {
      await client.query('rollback').catch(() => {});
      throw error;
    } finally {
      client.release();
    }
  }

  /** Places an order whose payment event always fails in its handler. Its shipment event works. Returns the id of the order. */
  async placePoisonOrder(): Promise<string> {
    const orderId = (await this.placeOrder(false)) as string;
    this.#close(orderId); // No other writer may advance it.
    this.poisonId = await this.advanceOrder(orderId, { changesMind: false, totalCents: '12,50' });
    await this.advanceOrder(orderId, { changesMind: false });
    return orderId;
  }

  #close(orderId: string): void {
    const index = this.#open.indexOf(orderId);
    if (index !== -1) this.#open.splice(index, 1);
  }
}

function eventOf(order: OrderRow, instead: Partial<OrderPayload> = {}) {
  const payload: OrderPayload = {
    orderId: order.id,
    revision: order.revision,
    totalCents: order.total_cents,
    ...instead,
  };
  return { type: `order.${order.status}`, aggregate: ['order', order.id] as const, payload };
}
