-- Records the transition of claimed events that were not delivered, for the relay that claimed them. `failures` is an array of
-- objects, one per event; `transition` is one of:
--   retry        the attempt failed and counts; the event is due again after `delay_ms`
--   release      it was not tried, or is not at fault: no attempt counts; due after `delay_ms`, or ready without it
--   shelve       it has reached all of its targets except those in `waits_for`, and waits for these on the shelf
--   dead_letter  it failed for good; its key continues
--   block        it failed for good; its key waits until an operator resolves the dead letter
-- `done` are the targets that have the event, `owed` those that it must still reach; if absent, the event keeps the old values.
-- Returns the seqs that this relay no longer owns, or not as it claimed them (G5).
--
-- One statement for all transitions: a crash between two would leave an event and a later one of its key in different states.
--
-- The token alone does not fence a repeated call: if the result of a call is lost, the relay may claim the event again before
-- it repeats the call, and the attempt would count twice. So `attempts` must be what it was when the event was claimed.
--
-- The settings are those of claim_many(), for the same reasons.
create or replace function :"schema".fail(relay bigint, failures jsonb) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  missed bigint[];
begin
  with input as materialized (
    select f.* from jsonb_to_recordset(failures) as f(
      seq bigint, attempts integer, transition text, delay_ms double precision, done jsonb, reason text, errors jsonb,
      waits_for jsonb, untried boolean, owed jsonb)
  ), owned as materialized (
    select q.seq, q.attempts from :"schema".outbox_queue q
     where q.seq = any (array(select seq from input)) and q.claimed_by = fail.relay
     order by q.seq for update
  ), mine as materialized (
    select i.*, case when i.done is null then null else array(select jsonb_array_elements_text(i.done)) end as done_targets,
           nullif(array(select jsonb_array_elements_text(i.owed)), '{}') as owed_targets
      from input i join owned o on o.seq = i.seq and o.attempts = i.attempts
  ), kept as (
    update :"schema".outbox_queue q
       set claimed_by = null,
           attempts = q.attempts + (m.transition in ('retry', 'block'))::integer,
           blocking = m.transition = 'block',
           -- A failed attempt survived its delivery, so this event did not end the earlier relays. A released event may have
           -- been in the middle of a trial, which then does not count. A blocking event is not claimed, and starts from zero
           -- when it is retried.
           takeovers = case when m.transition = 'block' or m.transition = 'retry' and m.untried is not true then 0
                            when m.transition = 'release' then least(q.takeovers, 4) else q.takeovers end,
           done = coalesce(m.done_targets, q.done),
           owed = case when m.owed is null then q.owed else m.owed_targets end,
           available_at = case
             when m.transition = 'block' then 'infinity'
             when m.delay_ms is not null then now() + m.delay_ms * interval '1 millisecond'
           end
      from mine m where q.seq = m.seq and m.transition in ('retry', 'block', 'release')
    returning q.seq, q.key, q.attempts, q.done, q.owed, q.replay_id, q.queue
  ), dead as (
    delete from :"schema".outbox_queue q using mine m where q.seq = m.seq and m.transition = 'dead_letter'
    returning q.seq, q.key, q.attempts + 1 as attempts, coalesce(m.done_targets, q.done) as done,
              case when m.owed is null then q.owed else m.owed_targets end as owed, q.replay_id, q.queue
  ), shelved as (
    delete from :"schema".outbox_queue q using mine m where q.seq = m.seq and m.transition = 'shelve'
    returning q.seq, q.key, q.attempts, least(q.takeovers, 4) as takeovers, coalesce(m.done_targets, q.done) as done,
              q.replay_id, q.queue, m.waits_for
  ), shelf as (
    insert into :"schema".outbox_shelf (destination, seq, key, attempts, takeovers, done, replay_id, queue)
    select w.destination, x.seq, x.key, x.attempts, x.takeovers, x.done, x.replay_id, nullif(x.queue, 'default')
      from shelved x cross join lateral jsonb_array_elements_text(x.waits_for) as w(destination)
    on conflict (destination, seq) do nothing
  ), known as (
    -- The destination may have been forgotten since this relay claimed the event: no relay would find its shelf.
    insert into :"schema".outbox_destinations (destination)
    select distinct w.destination from shelved x cross join lateral jsonb_array_elements_text(x.waits_for) as w(destination)
     where not exists (select from :"schema".outbox_destinations c where c.destination = w.destination)
    on conflict (destination) do nothing
  ), letters as (
    insert into :"schema".outbox_dead_letters (seq, reason, attempts, done, owed, replay_id, key, blocking, error, queue)
    select m.seq, m.reason, x.attempts, x.done, x.owed, x.replay_id, x.key, m.transition = 'block', m.errors -> -1 ->> 'error',
           nullif(x.queue, 'default')
      from mine m join (select * from kept union all select * from dead) x on x.seq = m.seq
     where m.transition in ('dead_letter', 'block')
    on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
      done = excluded.done, owed = excluded.owed, replay_id = excluded.replay_id, blocking = excluded.blocking,
      error = excluded.error, discarded_at = null, queue = excluded.queue
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    select m.seq, x.attempts, fail.relay, e.value ->> 'target', e.value ->> 'code', e.value ->> 'error'
      from mine m join (select * from kept union all select * from dead) x on x.seq = m.seq
      cross join lateral jsonb_array_elements(m.errors) e
     where m.transition not in ('release', 'shelve')
  )
  select array(select i.seq from input i where i.seq not in (select seq from mine)) into missed;
  return missed;
end
$postcommit$;
