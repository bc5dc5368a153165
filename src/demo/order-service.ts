import type pg from 'pg';
import { fromPg } from '../emit/from-pg.ts';
import type { Outbox } from '../emit/outbox.ts';
import { createOutbox } from '../emit/outbox.ts';
import type { DemoSchemas, DemoTables } from './order-service-tables.ts';
import { demoTables } from './order-service-tables.ts';

export type OrderEventType = 'order.created' | 'order.paid' | 'order.shipped';

/** What every event of an order carries. */
export interface OrderPayload {
  orderId: string;
  /** The order's committed changes so far, this one included. */
  revision: number;
  totalCents: number | string;
}

interface OrderRow {
  id: string;
  status: string;
  revision: number;
  total_cents: number;
}

/** Why a transaction is rolled back on purpose. */
class ChangedMind extends Error {}

/** Keeps the open orders few, so that writers meet at the same order. */
const openOrdersMax = 40;

/**
 * A small service as its developers would write it: each change of an order and the event about it are one
 * transaction. One in eight changes its mind after it has emitted, and rolls back.
 */
export class OrderService {
  readonly #pool: pg.Pool;
  readonly #tables: DemoTables;
  readonly #outbox: Outbox<pg.PoolClient>;
  readonly #rolledBackShare: number;
  readonly #open: string[] = [];
  /** Events in transactions that committed. */
  committed = 0;
  /** The ids of the events in transactions that were rolled back: nobody may ever see one of them. */
  readonly rolledBackIds: string[] = [];
  poisonId: string | undefined;

  constructor(pool: pg.Pool, schemas: DemoSchemas, rolledBackShare = 1 / 8) {
    this.#pool = pool;
    this.#tables = demoTables(schemas);
    this.#outbox = createOutbox({ db: fromPg<pg.PoolClient>(pool), schema: schemas.outbox });
    this.#rolledBackShare = rolledBackShare;
  }

  /** One piece of everyday work: a new order, or the next step of an open one. */
  async work(): Promise<void> {
    const open = this.#open.length;
    if (open === 0 || (open < openOrdersMax && Math.random() < 0.5)) await this.placeOrder();
    else await this.advanceOrder(this.#open[Math.floor(Math.random() * open)] as string);
  }

  /** The short way: `outbox.transaction` opens the transaction, and the event travels with COMMIT. */
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

  /** The long way: a transaction of one's own, and `outbox.emit` in it. Answers the event's id if it committed. */
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

  /** An order whose payment no handler will ever understand. Its shipment is in order again. Answers the order's id. */
  async placePoisonOrder(): Promise<string> {
    const orderId = (await this.placeOrder(false)) as string;
    this.#close(orderId); // Nobody else may take its next step.
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
