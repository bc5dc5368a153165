-- Moves the messages, dead letters and inbox of @nestjs/outbox (PostgresOutboxStore, schema nest_outbox) to Postcommit. See
-- from-nestjs-outbox.md. Run it when no instance with @nestjs/outbox runs any more:
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f from-nestjs-outbox.sql
--
-- One transaction. What it has moved is gone from the old tables, so it can be run again.

begin;

-- Nothing is added or relayed meanwhile.
lock table nest_outbox.messages, nest_outbox.dead_letters, nest_outbox.inbox in exclusive mode;

-- An id that is not a UUID gets a new one, and is kept as the header message-id.
create temp table moving on commit drop as
select o.*, case when o.id ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then o.id::uuid else gen_random_uuid() end as event_id
  from (
    select seq, id, topic, payload, headers, key, created_at, available_at, attempts, history,
           null::text as reason, null::bigint as failed_at, null::text as last_error
      from nest_outbox.messages
    union all
    select seq, id, topic, payload, headers, key, created_at, null, attempts, history, reason, failed_at, last_error
      from nest_outbox.dead_letters
  ) o;

-- The events, in their order. A trigger queues them. A key orders across all topics, so it is the ordering key here.
insert into postcommit.outbox_events
  (id, aggregate_type, aggregate_id, event_type, ordering_key, payload, headers, available_at, created_at)
select event_id, split_part(topic, '.', 1), coalesce(key, id), topic, coalesce(key, ''), coalesce(payload, 'null'),
       headers || case when event_id::text = lower(id) then '{}' else jsonb_build_object('message-id', id) end,
       case when available_at > extract(epoch from now()) * 1000
            then least(to_timestamp(available_at / 1000.0), now() + interval '8784 hours') end,
       to_timestamp(created_at / 1000.0)
  from moving
 order by seq;

-- Failed attempts count on. A consumer that has a message in its inbox is not called again: name the handler like it.
update postcommit.outbox_queue q
   set attempts = m.attempts,
       done = (select array_agg(i.consumer order by i.consumer) from nest_outbox.inbox i where i.message_id = m.id)
  from moving m join postcommit.outbox_events e on e.id = m.event_id
 where q.seq = e.seq;

insert into postcommit.outbox_failures (seq, attempt, failed_at, relay, target, error)
select e.seq, (h.value ->> 'attempt')::integer, to_timestamp((h.value ->> 'at')::bigint / 1000.0), 0,
       h.value ->> 'transport', coalesce(h.value ->> 'error', '')
  from moving m join postcommit.outbox_events e on e.id = m.event_id cross join lateral jsonb_array_elements(m.history) as h(value);

with failed as (
  delete from postcommit.outbox_queue q
   using moving m join postcommit.outbox_events e on e.id = m.event_id
   where q.seq = e.seq and m.reason is not null
  returning q.seq, q.key, q.done, m.failed_at, m.reason, m.attempts, m.last_error
)
insert into postcommit.outbox_dead_letters (seq, dead_at, reason, attempts, done, key, error)
select seq, to_timestamp(failed_at / 1000.0), case when reason = 'rejected' then 'rejected' else 'exhausted' end, attempts, done, key,
       coalesce(last_error, 'failed in @nestjs/outbox')
  from failed;

-- The inbox of consumers, for messages that they may receive again.
insert into postcommit.processed_events (consumer_name, event_id, processed_at)
select consumer, message_id::uuid, to_timestamp(processed_at / 1000.0)
  from nest_outbox.inbox
 where message_id ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
on conflict (consumer_name, event_id) do nothing;

delete from nest_outbox.messages;
delete from nest_outbox.dead_letters;
delete from nest_outbox.inbox;

select count(*) filter (where reason is null) as undelivered, count(*) filter (where reason is not null) as dead_letters
  from moving;

commit;
