import type pg from 'pg';
import { type Backlog, payloadOf } from '../contenders/contender.ts';

// Everything here is made by the server itself: ten million rows through a client would take a quarter of an hour.

/** Events of a kind that the queue does not hold. Small payloads, because nobody reads them again. */
async function insertIntoLog(db: pg.Client, eventType: string, events: number): Promise<void> {
  // Without the trigger: these have left the queue long ago, or are put there below.
  await db.query('alter table postcommit.outbox_events disable trigger user');
  await db.query(
    // Ids grow, as those of emit do; aggregates too, because inserts all over an index of millions take minutes.
    `insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
     select (lpad(to_hex(n), 8, '0') || $3)::uuid,
            'order', $1 || '-' || to_char(n / 100, 'FM00000000'), $1, jsonb_build_object('orderId', n)
       from generate_series(1, $2::bigint) n`,
    [eventType, events, `-0000-7000-8000-${Buffer.from(eventType).toString('hex').slice(0, 12).padEnd(12, '0')}`],
  );
  await db.query('alter table postcommit.outbox_events enable trigger user');
}

/** Events that were delivered, with their delivery records as batches of 500 leave them. */
export async function insertDelivered(db: pg.Client, events: number): Promise<void> {
  const { rows } = await db.query('select coalesce(max(seq), 0) as last from postcommit.outbox_events');
  await insertIntoLog(db, 'delivered', events);
  await db.query(
    `insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
     select 1, 1, array['noop'], int8multirange(int8range(first, least(first + 500, range.until)))
       from (select min(seq) as since, max(seq) + 1 as until from postcommit.outbox_events where seq > $1) range,
            generate_series(range.since, range.until - 1, 500) first`,
    [rows[0].last],
  );
}

/**
 * Fills the log without its secondary indexes and builds them afterwards: 10,000,000 events take minutes less. Not for a log
 * in partitions.
 */
export async function insertDeliveredWithoutIndexes(db: pg.Client, events: number): Promise<void> {
  const { rows } = await db.query(
    `select i.indexrelid::regclass::text as name, pg_get_indexdef(i.indexrelid) as definition
       from pg_index i
      where i.indrelid = 'postcommit.outbox_events'::regclass
        and not exists (select from pg_constraint c where c.conindid = i.indexrelid)`,
  );
  for (const { name } of rows) await db.query(`drop index ${name}`);
  await insertDelivered(db, events);
  await db.query("set maintenance_work_mem = '1GB'");
  for (const { definition } of rows) await db.query(definition);
}

/** Delivered events in partitions, each of which counts as a day. */
export async function insertDeliveredInPartitions(
  db: pg.Client,
  partitions: number,
  eventsEach: number,
): Promise<void> {
  for (let partition = 1; partition <= partitions; partition++) {
    await insertDelivered(db, eventsEach);
    // The last one stays open, for the backlog.
    if (partition < partitions) await db.query('select postcommit.rotate_partitions(true)');
  }
}

/** Events that failed and are not due again within the hour. Their aggregates are nobody else's. */
export async function insertInBackoff(db: pg.Client, events: number): Promise<void> {
  await insertIntoLog(db, 'backoff', events);
  await db.query(
    `insert into postcommit.outbox_queue (seq, key, available_at, attempts)
     select seq, postcommit.key_hash(aggregate_type, aggregate_id, ordering_key),
            now() + interval '1 hour' + random() * interval '1 day', 3
       from postcommit.outbox_events where event_type = 'backoff'`,
  );
}

/** Events that failed for good, with three failed attempts each. */
export async function insertDeadLetters(db: pg.Client, events: number): Promise<void> {
  await insertIntoLog(db, 'dead', events);
  await db.query(
    `insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
     select seq, 'exhausted', 3, postcommit.key_hash(aggregate_type, aggregate_id, ordering_key), 'no such account'
       from postcommit.outbox_events where event_type = 'dead'`,
  );
  await db.query(
    `insert into postcommit.outbox_failures (seq, attempt, relay, target, error)
     select seq, attempt, 1, 'noop', 'no such account'
       from postcommit.outbox_dead_letters, generate_series(1, 3) attempt`,
  );
}

const eventsPerStatement = 50_000;

/** Events to deliver, as large as all others of the benchmark. */
export async function insertBacklog(db: pg.Client, backlog: Backlog): Promise<void> {
  for (let first = 1; first <= backlog.events; first += eventsPerStatement) {
    await insertSlice(db, backlog, first, eventsPerStatement);
  }
}

/**
 * The same into several outboxes, a slice here and a slice there: whoever was filled last would have more of it in the
 * server's memory than whoever was filled first, and claim faster.
 */
export async function insertBacklogs(dbs: readonly pg.Client[], backlog: Backlog): Promise<void> {
  const sliceEvents = 2_000;
  for (let first = 1; first <= backlog.events; first += sliceEvents) {
    for (const db of dbs) await insertSlice(db, backlog, first, sliceEvents);
  }
}

async function insertSlice(db: pg.Client, backlog: Backlog, first: number, count: number): Promise<void> {
  const { events, payloadBytes, aggregates } = backlog;
  await db.query(
    `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
     select 'order', 'order-' || (hashint8(n) & 2147483647) % $3::integer, 'order.created',
            jsonb_set($4::text::jsonb, '{orderId}', to_jsonb(n))
       from generate_series($1::bigint, $2::bigint) n`,
    [first, Math.min(events, first + count - 1), aggregates, JSON.stringify(payloadOf(100_000, payloadBytes))],
  );
}
