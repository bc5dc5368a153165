-- Serialises the writers of one key until they commit, so that seq, drawn after the lock, follows commit order.
--
-- The keys of one call are locked in a fixed order, so that two transactions with one call each do not deadlock. Separate calls
-- lock in the order of the calls, and can deadlock as row locks can.
--
-- Thousands of keys would fill PostgreSQL's lock table (6,400 entries by default, shared by all sessions), so a first call with
-- more than 256 keys tries to close the gates instead: every emitter locks one of 16 gates (shared) before its first key, and a
-- transaction that locks all of them (exclusive) blocks every other emitter until it commits. An emitter that waits at a gate
-- has no key lock of this outbox yet, and one that has passed its gate does not wait there again, so the two kinds do not
-- deadlock. Sixteen gates, because a single lock that every commit touches would be contended.
--
-- PostgreSQL's lock queue is fair: behind a transaction that waits to close a gate, every later emitter waits too, whatever its
-- key. One idle transaction that has emitted would then block all others. So close_gates() has 100 ms for all gates and then
-- releases them, which bounds how long a waiting bulk call delays unrelated emitters. If it fails, up to 1,000 keys are locked
-- one by one. With more keys the call retries for 3 to 5 s, with pauses of 100 to 300 ms in which others pass, and then fails
-- with 55P03. The times are random, so that of two transactions that wait for each other's gate one gives up first.
--
-- A transaction that already has key locks continues key by key, and closes the gates at 1,000 keys.
--
-- Advisory lock classes start at 1886352483: one of 1,048,576 for the gates of each schema, followed by as many for the ids of
-- emit_once, and as many for relays (hold_relay_lock). `postcommit doctor` recognises them by that (src/outbox/examining/examine-locks.ts). Any role that may connect can
-- take them; emitters then wait up to their lock_timeout. The salt separates outboxes in different schemas. The setting records
-- what this transaction has locked; a rollback to a savepoint reverts it together with the locks.
--
-- emit_one() repeats this for the first key of a transaction: change both.
--
-- requires: close_gates
create or replace function :"schema".lock_keys(keys bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  salt constant bigint := hashtextextended(:'schema', 0);
  gates constant integer := 1886352483 + (salt & 1048575)::integer;
  locked text := coalesce(nullif(current_setting('postcommit.locked_keys', true), ''), ',');
  locked_count constant integer := length(locked) - length(replace(locked, ',', '')) - 1;
  fresh bigint[];
  k bigint;
  closed boolean := false;
  done boolean;
  deadline timestamptz;
begin
  if cardinality(keys) = 1 then
    k := keys[1] # salt;
    if k is null or strpos(locked, ',' || k || ',') > 0 or strpos(locked, ',all' || gates || ',') > 0 then
      return;
    end if;
    if locked_count < 1000 then
      -- Assigned, not performed: PL/pgSQL evaluates an expression without a statement of its own, which takes 5 us.
      done := pg_advisory_xact_lock_shared(gates, pg_backend_pid() & 15) is not null;
      done := pg_advisory_xact_lock(k) is not null;
      done := set_config('postcommit.locked_keys', locked || k || ',', true) is not null;
      return;
    end if;
  end if;

  select array_agg(distinct x # salt order by x # salt) into fresh
    from unnest(keys) x where x is not null and strpos(locked, ',' || (x # salt) || ',') = 0;
  if fresh is null or strpos(locked, ',all' || gates || ',') > 0 then
    return;
  end if;
  if (locked_count = 0 and cardinality(fresh) > 256) or locked_count + cardinality(fresh) > 1000 then
    closed := :"schema".close_gates();
    if not closed and locked_count + cardinality(fresh) > 1000 then
      deadline := clock_timestamp() + (3 + 2 * random()) * interval '1 second';
      while not closed and clock_timestamp() < deadline loop
        perform pg_sleep(0.1 + 0.2 * random());
        closed := :"schema".close_gates();
      end loop;
      if not closed then
        raise exception 'cannot emit for more than 1000 keys while other transactions that have emitted are open' using
          errcode = 'lock_not_available',
          hint = 'Emit for at most 1000 aggregates in a transaction, or try again when the others have ended.';
      end if;
    end if;
    if closed then
      perform set_config('postcommit.locked_keys', locked || 'all' || gates || ',', true);
      return;
    end if;
  end if;
  perform pg_advisory_xact_lock_shared(gates, pg_backend_pid() & 15);
  foreach k in array fresh loop
    perform pg_advisory_xact_lock(k);
  end loop;
  perform set_config('postcommit.locked_keys', locked || array_to_string(fresh, ',') || ',', true);
end
$postcommit$;
