import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { migrate, type OutboxAdmin } from 'postcommit';
import { createBillingTable } from '../billing.ts';
import { createOrderTables, SoldOut } from '../order-service.ts';

const orderCount = 5;
const arrivalTimeoutMs = 60_000;

/** An order service, or a client of one. */
export interface Orders {
  /** Throws SoldOut when nothing is left. */
  place(orderId: string, total: number): Promise<void>;
  pay(orderId: string): Promise<void>;
}

/** The tables of the outbox, the order service and billing. A service of yours has its own migrations. */
export async function createTables(databaseUrl: string, pool: pg.Pool): Promise<void> {
  await migrate({ connectionString: databaseUrl });
  await createOrderTables(pool, orderCount);
  await createBillingTable(pool);
}

/**
 * Some orders, one too many, and an event that is delivered twice. Returns whether billing has exactly what was
 * committed, in order.
 */
export async function tellStory(orders: Orders, admin: OutboxAdmin, pool: pg.Pool): Promise<boolean> {
  const ids = Array.from({ length: orderCount }, (_, index) => String(index + 1));
  await Promise.all(
    ids.map(async (id) => {
      await orders.place(id, 100);
      await orders.pay(id);
    }),
  );
  const last = await orders.place(String(orderCount + 1), 100).then(
    () => 'got in',
    (error) => (error instanceof SoldOut ? 'was sold out and rolled back' : String(error)),
  );
  console.log(`orders   ${orderCount} committed, each placed and paid; one more ${last}`);

  const events = 2 * orderCount;
  const all = await arrived(pool, { events, deliveries: events });
  const { count } = await admin.replay({ aggregate: ['order', '1'] });
  console.log(`orders   ${count} events of order 1 are sent again, as it happens after a crash`);
  const again = await arrived(pool, { events, deliveries: events + count });

  const { rows } = await pool.query<{ order_id: string; story: string }>(
    `select order_id, string_agg(event_type, ', ' order by position) as story from billing group by 1 order by 1`,
  );
  const inOrder = rows.filter(({ story }) => story === 'order.created, order.paid').map(({ order_id }) => order_id);
  const ok =
    last.endsWith('rolled back') && all && again && rows.length === orderCount && inOrder.join() === ids.join();
  console.log(
    ok
      ? `ok       all ${events} events arrived, in order for each of ${orderCount} orders, none of the one rolled back`
      : `failed   billing has ${JSON.stringify(rows)}`,
  );
  return ok;
}

/** Whether billing comes to know exactly so many events, delivered so many times. */
async function arrived(pool: pg.Pool, expected: { events: number; deliveries: number }): Promise<boolean> {
  const deadline = performance.now() + arrivalTimeoutMs;
  while (performance.now() < deadline) {
    const { rows } = await pool.query(
      'select count(*)::integer as events, coalesce(sum(deliveries), 0)::integer as deliveries from billing',
    );
    const { events, deliveries } = rows[0];
    if (events === expected.events && deliveries >= expected.deliveries) return true;
    await sleep(50);
  }
  return false;
}
