import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

// UPDATE instead of an upsert: a relay that finds the duty taken must not even lock its row, because all relays try three
// times per lease. Of two that find it free, the second waits for the first and then sees that it is taken. The duty of a
// relay that has stopped or was declared lost is free immediately.
const takeDutySql = perSchema(
  (s) => `
with taken as (
  update ${s}.outbox_leadership l
     set lease_until = now() + $3::double precision * interval '1 millisecond',
         epoch = l.epoch + (l.owner <> $2::bigint)::integer,
         acquired_at = case when l.owner = $2::bigint then l.acquired_at else now() end,
         owner = $2::bigint
   where l.name = $1::text
     and (l.owner = $2::bigint or l.lease_until < now()
          or not exists (select from ${s}.outbox_relays r where r.token = l.owner and r.ended_at is null))
     and exists (select from ${s}.outbox_relays r where r.token = $2::bigint and r.ended_at is null)
  returning l.epoch
), created as (
  insert into ${s}.outbox_leadership (name, owner, lease_until)
  select $1::text, $2::bigint, now() + $3::double precision * interval '1 millisecond'
   where not exists (select from ${s}.outbox_leadership l where l.name = $1::text)
  on conflict (name) do nothing
  returning epoch
)
select epoch::text from taken union all select epoch::text from created`,
);

/** A duty that one relay at a time owns. The epoch fences: it grows with each change of owner. */
export interface Duty {
  name: string;
  /** The relay's token. */
  owner: string;
}

/** Takes a free duty, or renews an owned one. Returns its epoch, or `undefined` if another relay owns it. */
export async function takeDuty(
  db: Executor,
  schema: string,
  { name, owner }: Duty,
  leaseMs: number,
): Promise<string | undefined> {
  const { rows } = await db.query(takeDutySql(schema), [name, owner, leaseMs]);
  return (rows[0] as { epoch: string } | undefined)?.epoch;
}

// The row stays: deleting it would restart the epoch, which would no longer fence.
const releaseDutySql = perSchema(
  (s) => `update ${s}.outbox_leadership set lease_until = '-infinity' where name = $1::text and owner = $2::bigint`,
);

/** Releases a duty: the next relay that tries takes it. */
export async function releaseDuty(db: Executor, schema: string, { name, owner }: Duty): Promise<void> {
  await db.query(releaseDutySql(schema), [name, owner]);
}
