-- Returns the low-water mark that a claim may use: the relay's own, if nothing was requeued since it was taken, the server is
-- the same and the sequence of the log has not gone back below it; else 0. Call it in the statement that reads the queue, so
-- that it reads the sequences after that statement's snapshot was taken (see src/relay/lane/low-water.ts). SECURITY DEFINER: a
-- relay may not read the log's sequence.
--
-- requires: server_stamp
create or replace function :"schema".usable_low_water(mark bigint, mark_requeues bigint, mark_server text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $postcommit$
begin
  -- Expressions, because a query for each would cost more than all the rest of the function.
  if mark > 0 and mark_server = :"schema".server_stamp()
     and mark_requeues = pg_sequence_last_value(:'schema.outbox_requeues'::regclass)
     and mark <= pg_sequence_last_value(:'schema.outbox_events_seq_seq'::regclass) then
    return mark;
  end if;
  return 0;
end
$postcommit$;
revoke execute on function :"schema".usable_low_water(bigint, bigint, text) from public;
