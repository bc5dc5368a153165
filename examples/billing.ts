import type pg from 'pg';

/** What a consumer reads from the body of a message: the parts of the envelope that it needs. */
export interface OrderEvent {
  eventId: string;
  eventType: string;
  aggregate: { type: string; id: string };
}

/**
 * A consumer, whichever way events reach it. Delivery is at least once, so the same event may come again: it has the
 * same id then, and the primary key tells. The row is the work and the memory of it in one statement; where the work is
 * more than that, write the id and do the work in one transaction.
 */
export class Billing {
  readonly #pool: pg.Pool;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  async receive({ eventId, eventType, aggregate }: OrderEvent): Promise<void> {
    const { rows } = await this.#pool.query(
      `insert into billing (event_id, event_type, order_id) values ($1, $2, $3)
       on conflict (event_id) do update set deliveries = billing.deliveries + 1
       returning deliveries`,
      [eventId, eventType, aggregate.id],
    );
    const isNew = rows[0].deliveries === 1;
    console.log(`billing  ${eventType} of order ${aggregate.id}${isNew ? '' : ' again: known by its id, ignored'}`);
  }
}

export async function createBillingTable(pool: pg.Pool): Promise<void> {
  await pool.query(
    `create table billing (event_id uuid primary key, position bigint generated always as identity,
       event_type text not null, order_id text not null, deliveries integer not null default 1)`,
  );
}
