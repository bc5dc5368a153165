-- Pauses a named queue: relays claim nothing more from it, and what they have claimed ends normally. When this has committed,
-- no claim that began before is still running (see claim_many). If it is already paused, a new reason replaces the old one.
-- A queue need not have any events: it may be paused before the first one. Call it in a transaction of its own: claims of the
-- queue find nothing until that ends.
--
-- requires: queue_lock
create or replace function :"schema".pause_queue(given text, note text) returns void
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
begin
  perform pg_advisory_xact_lock(:"schema".queue_lock(given));
  insert into :"schema".outbox_queue_states as s (queue, paused_at, reason) values (given, now(), nullif(note, ''))
  on conflict (queue) do update
    set paused_at = coalesce(s.paused_at, now()), reason = coalesce(nullif(note, ''), case when s.paused_at is not null then s.reason end),
        changed_at = now();
end
$postcommit$;
