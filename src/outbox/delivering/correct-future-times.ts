import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

// Each of these was now() when it was written, so one in the future means that the clock was set back. One second of
// tolerance for transactions that began before the one that wrote it. A lease keeps its length; a probe is due immediately.
const correctFutureTimesSql = perSchema(
  (s) => `
with relays as (
  update ${s}.outbox_relays r set lease_until = now() + (r.lease_until - r.heartbeat_at), heartbeat_at = now()
   where r.ended_at is null and r.heartbeat_at > now() + interval '1 second'
), destinations as (
  update ${s}.outbox_destinations c
     set changed_at = now(), unshelved_at = least(c.unshelved_at, now()),
         probe_at = case when c.probe_at is not null then now() end
   where c.changed_at > now() + interval '1 second' or c.unshelved_at > now() + interval '1 second'
)
select date_part('epoch', now()) * 1000 as "clockMs"`,
);

/**
 * Corrects for a database clock that was set back: leases and probes keep their remaining time instead of waiting for the
 * clock to catch up. Otherwise changes nothing. Returns the database's clock, in milliseconds.
 */
export async function correctFutureTimes(db: Executor, schema: string): Promise<number> {
  const { rows } = await db.query(correctFutureTimesSql(schema), []);
  return (rows[0] as { clockMs: number }).clockMs;
}
