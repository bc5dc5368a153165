-- Locks ids until the transaction ends, and returns those that no event of the log has.
--
-- A unique index over the partitions of a log is impossible without the seq, so uniqueness comes from the lock: of two
-- transactions that emit one id once, the second looks when the first has ended, in whatever partition that has written.
-- It needs a snapshot that is younger than the lock, which only READ COMMITTED gives; in a log of one table the unique
-- index fails the later one of two such transactions (40001), in a partitioned one nothing would. The table cannot be
-- partitioned between the check and the insert, because looking for the ids locks it.
--
-- A lock has a class of its own and 32 bits of the id's hash, so that `postcommit doctor` recognises it. Two ids with the same hash
-- wait for each other, and nothing else comes of it.
--
-- With the rights of its owner: an emitter cannot read the log, and learns here only whether an id exists.
create or replace function :"schema".lock_new_ids(ids uuid[]) returns uuid[]
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set jit = off as $postcommit$
declare
  class constant integer := 1886352483 + 1048576 + (hashtextextended(:'schema', 0) & 1048575)::integer;
  lock_id integer;
  known uuid[];
begin
  if cardinality(ids) > 1000 then
    raise exception 'emit_once takes at most 1000 events in a call' using errcode = 'invalid_parameter_value';
  end if;
  -- In order, so that two calls do not deadlock.
  for lock_id in select distinct hashtext(i::text) as x from unnest(ids) i order by x loop
    perform pg_advisory_xact_lock(class, lock_id);
  end loop;
  known := array(select e.id from :"schema".outbox_events e where e.id = any (ids));
  if current_setting('transaction_isolation') <> 'read committed'
     and (select relkind = 'p' from pg_class where oid = format('%I.outbox_events', :'schema')::regclass) then
    raise exception 'emit_once on a partitioned log works under READ COMMITTED only' using
      errcode = 'invalid_transaction_state';
  end if;
  return array(select i from unnest(ids) i where i <> all (known));
end
$postcommit$;
revoke execute on function :"schema".lock_new_ids(uuid[]) from public;
