-- Locks ids until the transaction ends, and returns those that are not in the log.
--
-- A unique index over the partitions of a log is impossible without the seq, so the lock makes ids unique: of two transactions
-- that emit the same id once, the second reads the log after the first has ended, whichever partition that wrote to. This needs
-- a snapshot taken after the lock, which only READ COMMITTED provides. In an unpartitioned log the unique index fails the later
-- of two such transactions (40001); in a partitioned one nothing would. The table cannot be partitioned between the check and
-- the insert, because reading it locks it.
--
-- A lock has its own class and 32 bits of the id's hash, so that `postcommit doctor` recognises it. Two ids with the same hash
-- only wait for each other.
--
-- SECURITY DEFINER: an emitter cannot read the log, and learns only whether an id exists.
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
  -- In a fixed order, so that two calls do not deadlock.
  for lock_id in select distinct hashtext(i::text) as x from unnest(ids) i order by x loop
    perform pg_advisory_xact_lock(class, lock_id);
  end loop;
  known := array(select e.id from :"schema".outbox_events e where e.id = any (ids));
  if current_setting('transaction_isolation') <> 'read committed'
     and (select relkind = 'p' from pg_class where oid = :'schema.outbox_events'::regclass) then
    raise exception 'emit_once on a partitioned log works under READ COMMITTED only' using
      errcode = 'invalid_transaction_state';
  end if;
  return array(select i from unnest(ids) i where i <> all (known));
end
$postcommit$;
revoke execute on function :"schema".lock_new_ids(uuid[]) from public;
