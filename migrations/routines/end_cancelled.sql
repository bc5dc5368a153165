-- Removes the queue rows of events that were cancelled during a delivery which has ended: those of `ended`, for the relay that
-- delivered them, and those of all relays that have ended. Later events of their keys become claimable. Returns how many.
--
-- Takes the unshelve lock, like cancel_events and make_due: only one of these changes the queue at a time, so they cannot lock
-- the same rows in different orders.
--
-- requires: undefer
create or replace function :"schema".end_cancelled(relay bigint, ended bigint[]) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
#variable_conflict use_column
declare
  keys bigint[];
  seqs bigint[];
begin
  perform pg_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended(:'schema', 0)));
  with gone as (
    delete from :"schema".outbox_cancellations c
     where (c.relay = end_cancelled.relay and c.seq = any (ended))
        or not exists (select from :"schema".outbox_relays r where r.token = c.relay and r.ended_at is null)
    returning c.seq
  ), freed as (
    delete from :"schema".outbox_queue q
     where q.seq = any (array(select g.seq from gone g)) and q.claimed_by = 0 and q.blocking
    returning q.seq, q.key
  )
  select coalesce(array_agg(f.key), '{}'), coalesce(array_agg(f.seq), '{}') into keys, seqs from freed f;
  perform :"schema".undefer(keys, seqs);
  return cardinality(seqs);
end
$postcommit$;
