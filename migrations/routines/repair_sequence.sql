-- Moves the log's sequence up to where it must be. Returns the seq of the next event if it was moved, else NULL. Only the owner
-- can call it. Writers wait meanwhile: a seq drawn between reading and setval() would move the sequence back.
--
-- requires: require_read_committed, sequence_state
create or replace function :"schema".repair_sequence() returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '2s' as $postcommit$
declare
  state record;
begin
  perform :"schema".require_read_committed('the sequence can be repaired');
  perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
  lock table :"schema".outbox_events in share row exclusive mode;
  select * into state from :"schema".sequence_state();
  if state.next_seq >= state.needed_seq then
    return null;
  end if;
  -- is_called = false: a partition that was opened and has no events yet, as rotation leaves it.
  if state.needed_seq % 1000000000000 = 0 then
    perform setval(:'schema.outbox_events_seq_seq'::regclass, state.needed_seq, false);
  else
    perform setval(:'schema.outbox_events_seq_seq'::regclass, state.needed_seq - 1, true);
  end if;
  return state.needed_seq;
end
$postcommit$;
revoke execute on function :"schema".repair_sequence() from public;
