import type { Executor } from '../database/executor.ts';
import type { DemoSchemas, DemoTables } from './order-service-tables.ts';
import { demoTables } from './order-service-tables.ts';

/** The numbers of a run, from the database. They count events unless stated otherwise. */
export interface Evidence {
  orders: number;
  /** In committed transactions, according to the business data alone: the revisions of all orders. */
  committed: number;
  /** Committed events that a handler received at least once. */
  delivered: number;
  /** Committed events that no handler received and that are not dead letters. */
  lost: number;
  /** Repeated deliveries to handlers. */
  duplicates: number;
  /** In transactions that were rolled back. */
  rolledBack: number;
  /** Rolled back events that are in the log or reached a handler, and other events without an order. */
  leaked: number;
  /** First deliveries before an earlier event of the same order. */
  orderViolations: number;
  /** Failed attempts that were retried. */
  retries: number;
  /** Dead letters. */
  dead: number;
  /** The oldest of them. */
  deadLetters: DeadLetterEvidence[];
  /** Counts of the view outbox_status: SENT, FAILED, and all others. */
  status: { sent: number; failed: number; open: number };
  /** From commit to handler, of events whose first attempt succeeded and that were not in flight during the outage. */
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

/** Every revision of every order must have an event in the log. Counts these events by outcome. */
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
 * The first deliveries of all events, in order of time. The order is checked against `seq` of the outbox, and against
 * `revision`, which the row of the order counts under its lock.
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

/** Compares the data of the service, the records of the handlers and the outbox. Call it when all relays have stopped. */
export async function gatherEvidence(
  db: Executor,
  schemas: DemoSchemas,
  rolledBackIds: readonly string[],
  outage: Outage = { from: 'infinity', to: '-infinity' },
): Promise<Evidence> {
  const t = demoTables(schemas);
  const { p50, p99, rate } = await queryOne<{ p50: number; p99: number; rate: number }>(db, speedSql(t), [
    outage.from,
    outage.to,
  ]);
  return {
    ...(await queryOne<Account>(db, accountSql(t), [rolledBackIds])),
    ...(await queryOne<Pick<Evidence, 'orderViolations'>>(db, orderSql(t))),
    deadLetters: (await db.query(deadSql(t))).rows as unknown as DeadLetterEvidence[],
    status: await queryOne<Evidence['status']>(db, statusSql(t)),
    latencyMs: { p50, p99 },
    ratePerSecond: rate,
  };
}

/** How many events are left to deliver. */
export async function countBacklog(db: Executor, schemas: DemoSchemas): Promise<number> {
  const { n } = await queryOne<{ n: number }>(db, `select count(*)::integer as n from ${demoTables(schemas).queue}`);
  return n;
}

/** How many events a relay has claimed, whether another relay has taken over from it, and the time of the query. */
export async function readRelayState(
  db: Executor,
  schemas: DemoSchemas,
  token: string,
): Promise<{ held: number; lost: boolean; at: string }> {
  const t = demoTables(schemas);
  return queryOne(
    db,
    `select (select count(*)::integer from ${t.queue} where claimed_by = $1) as held,
            coalesce((select ended_as is not null from ${t.relays} where token = $1), true) as lost,
            clock_timestamp()::text as at`,
    [token],
  );
}

async function queryOne<Row>(db: Executor, text: string, values: unknown[] = []): Promise<Row> {
  const { rows } = await db.query(text, values);
  return rows[0] as Row;
}
