import type { Executor } from '../database/executor.ts';
import type { DemoSchemas, DemoTables } from './order-service-tables.ts';
import { demoTables } from './order-service-tables.ts';

/** What the database says after a run. Every number counts events unless it says otherwise. */
export interface Evidence {
  orders: number;
  /** In committed transactions, by the business data alone: the revisions of all orders. */
  committed: number;
  /** Of those: received by a handler at least once. */
  delivered: number;
  /** Of those: neither received by a handler nor a dead letter. */
  lost: number;
  /** Received by a handler more than once: how many times too often, in total. */
  duplicates: number;
  /** In transactions that were rolled back. */
  rolledBack: number;
  /** Of those: in the log or received by a handler; and whatever else handlers received that no order accounts for. */
  leaked: number;
  /** First deliveries that came before an earlier event of the same order. */
  orderViolations: number;
  /** Failed attempts that were tried again. */
  retries: number;
  /** Dead letters. */
  dead: number;
  /** The oldest of them. */
  deadLetters: DeadLetterEvidence[];
  /** By the outbox's own view: SENT, FAILED, and what is left over. */
  status: { sent: number; failed: number; open: number };
  /** From commit to handler, of events whose first attempt succeeded and that were not on their way in the outage. */
  latencyMs: { p50: number; p99: number };
  /** Events delivered per second, from the first delivery to the last. */
  ratePerSecond: number;
}

/** The time from a crash to the takeover, by the database's clock. */
export interface Outage {
  from: string;
  to: string;
}

export interface DeadLetterEvidence {
  eventId: string;
  orderId: string;
  type: string;
  attempts: number;
  error: string;
}

type Account = Pick<
  Evidence,
  'orders' | 'committed' | 'delivered' | 'dead' | 'lost' | 'duplicates' | 'rolledBack' | 'leaked' | 'retries'
>;

/** Every revision of every order must have an event in the log; what became of it. */
const accountSql = (t: DemoTables) => `
with expected as (
  select o.id::text as order_id, r as revision from ${t.orders} o, generate_series(1, o.revision) r
), outcome as (
  select x.order_id, x.revision, e.id, d.event_id is not null as delivered, l.seq is not null as dead
    from expected x
    left join ${t.events} e on e.aggregate_id = x.order_id and (e.payload ->> 'revision')::integer = x.revision
    left join (select distinct event_id from ${t.deliveries}) d on d.event_id = e.id
    left join ${t.deadLetters} l on l.seq = e.seq
), rolled_back as (
  select unnest($1::uuid[]) as id
)
select (select count(*)::integer from ${t.orders}) as orders,
       (select count(*)::integer from expected) as committed,
       (select count(*)::integer from outcome where delivered) as delivered,
       (select count(*)::integer from outcome where not delivered and not dead) as lost,
       (select count(*) - count(distinct event_id) from ${t.deliveries})::integer as duplicates,
       (select count(*)::integer from rolled_back) as "rolledBack",
       (select count(*)::integer from (
          (select id from rolled_back intersect select id from ${t.events})
          union (select event_id from ${t.deliveries} except select id from outcome)
          union (select id from ${t.events} except select id from outcome)
        ) x) as leaked,
       (select count(*)::integer from ${t.deadLetters}) as dead,
       ((select count(*) from ${t.failures}) - (select count(*) from ${t.deadLetters}))::integer as retries`;

/**
 * The first delivery of each event, in the order they happened. Two measures of what came first: `seq`, which the
 * outbox gave, and `revision`, which the order's own row counted under its lock.
 */
const orderSql = (t: DemoTables) => `
with first as (
  select event_id, min(position) as position from ${t.deliveries} group by event_id
), stepped as (
  select e.seq, (e.payload ->> 'revision')::integer as revision,
         max(e.seq) over before as seq_before,
         max((e.payload ->> 'revision')::integer) over before as revision_before
    from first f join ${t.events} e on e.id = f.event_id
  window before as (partition by e.aggregate_type, e.aggregate_id order by f.position
                    rows between unbounded preceding and 1 preceding)
)
select count(*)::integer as "orderViolations" from stepped where seq < seq_before or revision < revision_before`;

const speedSql = (t: DemoTables) => `
with first as (
  select event_id, min(attempt) as attempt, min(received_at) as received_at from ${t.deliveries} group by event_id
), delay as (
  select extract(epoch from f.received_at - e.created_at)::double precision * 1000 as ms
    from first f join ${t.events} e on e.id = f.event_id
   where f.attempt = 1 and not (e.created_at < $2::timestamptz and f.received_at > $1::timestamptz)
)
select coalesce((select percentile_cont(0.5) within group (order by ms) from delay), 0) as p50,
       coalesce((select percentile_cont(0.99) within group (order by ms) from delay), 0) as p99,
       coalesce((select count(*) / nullif(extract(epoch from max(received_at) - min(received_at)), 0)
                   from first), 0)::double precision as rate`;

const deadSql = (t: DemoTables) => `
select e.id as "eventId", e.aggregate_id as "orderId", e.event_type as type, l.attempts, l.error
  from ${t.deadLetters} l join ${t.events} e using (seq) order by l.dead_at, l.seq limit 10`;

const statusSql = (t: DemoTables) => `
select count(*) filter (where status = 'SENT')::integer as sent,
       count(*) filter (where status = 'FAILED')::integer as failed,
       count(*) filter (where status not in ('SENT', 'FAILED'))::integer as open
  from ${t.status}`;

/** Compares the service's data, the handlers' records and the outbox. To be called when nothing moves any more. */
export async function gatherEvidence(
  db: Executor,
  schemas: DemoSchemas,
  rolledBackIds: readonly string[],
  outage: Outage = { from: 'infinity', to: '-infinity' },
): Promise<Evidence> {
  const t = demoTables(schemas);
  const { p50, p99, rate } = await askOne<{ p50: number; p99: number; rate: number }>(db, speedSql(t), [
    outage.from,
    outage.to,
  ]);
  return {
    ...(await askOne<Account>(db, accountSql(t), [rolledBackIds])),
    ...(await askOne<Pick<Evidence, 'orderViolations'>>(db, orderSql(t))),
    deadLetters: (await db.query(deadSql(t))).rows as unknown as DeadLetterEvidence[],
    status: await askOne<Evidence['status']>(db, statusSql(t)),
    latencyMs: { p50, p99 },
    ratePerSecond: rate,
  };
}

/** How many events are left to deliver. */
export async function countBacklog(db: Executor, schemas: DemoSchemas): Promise<number> {
  const { n } = await askOne<{ n: number }>(db, `select count(*)::integer as n from ${demoTables(schemas).queue}`);
  return n;
}

/** What a relay has in its hands, whether another one has declared it lost, and when that was asked. */
export async function lookAtRelay(
  db: Executor,
  schemas: DemoSchemas,
  token: string,
): Promise<{ held: number; lost: boolean; at: string }> {
  const t = demoTables(schemas);
  return askOne(
    db,
    `select (select count(*)::integer from ${t.queue} where claimed_by = $1) as held,
            coalesce((select ended_as is not null from ${t.relays} where token = $1), true) as lost,
            clock_timestamp()::text as at`,
    [token],
  );
}

async function askOne<Row>(db: Executor, text: string, values: unknown[] = []): Promise<Row> {
  const { rows } = await db.query(text, values);
  return rows[0] as Row;
}
