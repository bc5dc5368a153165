import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Handler, Handlers } from '../relay/deliver/handlers.ts';
import type { OrderEventType, OrderPayload } from './order-service.ts';
import type { DemoSchemas } from './order-service-tables.ts';
import { demoTables } from './order-service-tables.ts';

type OrderHandler = Handler<OrderPayload>;

/** The payment provider fails one call in twelve. The third attempt always succeeds. */
const paymentFailureShare = 1 / 12;

/**
 * The handlers of the demo. Each records that it received the event and then works for a moment. A relay that is killed in that
 * moment has delivered the event, but not settled it, so the event is delivered again.
 */
export function orderHandlers(
  pool: pg.Pool,
  schemas: DemoSchemas,
  relay: string,
  onReceived: (latencyMs: number) => void,
): Handlers {
  const receiveSql = `
insert into ${demoTables(schemas).deliveries} (event_id, relay, attempt) values ($1, $2, $3)
returning (extract(epoch from received_at) * 1000)::double precision as received_at_ms`;

  const receive: OrderHandler = async (event, ctx) => {
    const { rows } = await pool.query(receiveSql, [event.id, relay, ctx.attempt]);
    // Both times are from the database's clock.
    if (ctx.attempt === 1)
      onReceived((rows[0] as { received_at_ms: number }).received_at_ms - event.occurredAt.getTime());
    await sleep(5 + Math.random() * 25, undefined, { signal: ctx.signal });
  };
  const bookPayment: OrderHandler = async (event, ctx) => {
    const { totalCents } = event.payload;
    if (typeof totalCents !== 'number') throw new Error(`amount ${JSON.stringify(totalCents)} is not a number`);
    if (ctx.attempt < 3 && Math.random() < paymentFailureShare)
      throw new Error('the payment provider responded with 503');
    await receive(event, ctx);
  };
  const handlers: Record<OrderEventType, Record<string, OrderHandler>> = {
    'order.created': { 'send-confirmation': receive },
    'order.paid': { 'book-payment': bookPayment },
    'order.shipped': { 'notify-customer': receive },
  };
  return handlers;
}
