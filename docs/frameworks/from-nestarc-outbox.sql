-- Moves the undelivered and failed events of @nestarc/outbox (public.outbox_events, 0.1 and later) to Postcommit. See
-- from-nestarc-outbox.md. Run it when no instance with @nestarc/outbox runs any more:
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f from-nestarc-outbox.sql
--
-- One transaction. What it has moved is gone from the old table, so it can be run again. SENT events stay where they are.

begin;

-- Nothing is emitted or polled meanwhile.
lock table public.outbox_events in exclusive mode;

-- As JSON, because 0.1 has fewer columns than later versions.
create temp table moving on commit drop as
select o.id, o.status, o.retry_count, o.last_error, o.updated_at, o.created_at, to_jsonb(o) as old
  from public.outbox_events o
 where o.status in ('PENDING', 'PROCESSING', 'FAILED');

-- The events, in the order in which they were emitted. A trigger queues them.
insert into postcommit.outbox_events
  (id, aggregate_type, aggregate_id, event_type, ordering_key, payload, headers, available_at, created_at, attempts_max)
select m.id,
       coalesce(old ->> 'aggregate_type', split_part(old ->> 'event_type', '.', 1)),
       coalesce(old ->> 'aggregate_id', m.id::text),
       old ->> 'event_type',
       -- Without an aggregate and without a key there is no order, as before.
       case when old ->> 'aggregate_id' is null then coalesce(old ->> 'partition_key', '') else old ->> 'partition_key' end,
       old -> 'payload',
       coalesce(old -> 'headers', '{}') || jsonb_strip_nulls(jsonb_build_object(
         'tenant-id', old -> 'tenant_id', 'correlation-id', old -> 'correlation_id',
         'causation-id', old -> 'causation_id', 'idempotency-key', old -> 'idempotency_key')),
       case when m.status = 'PENDING' and (old ->> 'next_attempt_at')::timestamptz > now()
            then (old ->> 'next_attempt_at')::timestamptz end,
       m.created_at,
       case when (old ->> 'max_retries')::integer between 1 and 1000 then (old ->> 'max_retries')::integer end
  from moving m
 order by m.created_at, m.id;

-- Failed attempts count on.
update postcommit.outbox_queue q
   set attempts = m.retry_count
  from moving m join postcommit.outbox_events e on e.id = m.id
 where q.seq = e.seq and m.retry_count > 0;

insert into postcommit.outbox_failures (seq, attempt, failed_at, relay, error)
select e.seq, m.retry_count, m.updated_at, 0, m.last_error
  from moving m join postcommit.outbox_events e on e.id = m.id
 where m.last_error is not null;

-- FAILED events become dead letters, which an operator can retry or discard.
with failed as (
  delete from postcommit.outbox_queue q
   using moving m join postcommit.outbox_events e on e.id = m.id
   where q.seq = e.seq and m.status = 'FAILED'
  returning q.seq, q.key, m.updated_at, m.retry_count, m.last_error
)
insert into postcommit.outbox_dead_letters (seq, dead_at, reason, attempts, key, error)
select seq, updated_at, case when last_error like 'No registered handlers%' then 'no_handler' else 'exhausted' end,
       retry_count, key, coalesce(last_error, 'failed in @nestarc/outbox')
  from failed;

delete from public.outbox_events o using moving m where o.id = m.id;

select count(*) filter (where status <> 'FAILED') as undelivered, count(*) filter (where status = 'FAILED') as dead_letters
  from moving;

commit;
