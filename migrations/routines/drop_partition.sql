-- Drops a closed partition, log and record together, unless something in it is not delivered. Returns why not.
--
-- A drop needs ACCESS EXCLUSIVE locks on the whole log and record, for as long as it takes, which is milliseconds; if
-- it cannot have them soon, the caller tries again later. Only with these locks the last look counts: an event cannot come, a dead letter
-- cannot be retried, and no event can be replayed, because all of these read or write the log first. Queue and shelf are
-- looked at in one statement, as events move between them, and the dead letters after that, as events come from there.
--
-- Unresolved dead letters survive: their events move to the default partition, which may hold them from
-- the moment the partition is detached. The insert is into that table itself, so that no trigger puts them into the queue.
--
-- requires: check_partition, is_attached, require_read_committed
create or replace function :"schema".drop_partition(
  n bigint, keep_ms double precision default null, lock_timeout_ms integer default 200
) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '200ms' as $postcommit$
declare
  first constant bigint := n * 1000000000000;
  beyond constant bigint := (n + 1) * 1000000000000;
  letters_max constant integer := 10000;
  letters_bytes_max constant integer := 4194304;
  columns text;
  part :"schema".outbox_partitions;
  undelivered bigint;
  letters bigint[];
  unsettled jsonb;
  leaf text;
  detail text;
begin
  perform :"schema".require_read_committed();
  perform set_config('lock_timeout', lock_timeout_ms::text, true);
  begin
    perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
    select * into part from :"schema".outbox_partitions where number = n and dropped_at is null;
    if part.number is null then
      return jsonb_build_object('kept', 'unknown');
    elsif part.opened_at is null then
      return jsonb_build_object('kept', 'spare');
    elsif part.closed_at is null then
      return jsonb_build_object('kept', 'open');
    elsif keep_ms is not null and part.closed_at > now() - keep_ms * interval '1 millisecond' then
      return jsonb_build_object('kept', 'young', 'closedAt', part.closed_at);
    end if;

    -- Once before any session has to wait, and once under the locks, when nothing can change any more.
    for look in 1 .. 2 loop
      select count(*) into undelivered from (
        (select from :"schema".outbox_queue where seq >= first and seq < beyond limit 1000)
        union all
        (select from :"schema".outbox_shelf where seq >= first and seq < beyond limit 1000)
      ) u;
      if undelivered > 0 then
        return jsonb_build_object('kept', 'undelivered', 'count', undelivered);
      end if;
      letters := array(select seq from :"schema".outbox_dead_letters
                        where seq >= first and seq < beyond and discarded_at is null limit letters_max + 1);
      -- They are copied while writers wait: not too many of them, nor too large.
      if cardinality(letters) > letters_max or letters_bytes_max < (
        select sum(pg_column_size(e.payload) + pg_column_size(e.headers)) from :"schema".outbox_events e
         where e.seq = any (letters) and e.seq >= first and e.seq < beyond) then
        return jsonb_build_object('kept', 'dead letters', 'count', cardinality(letters));
      end if;
      exit when look = 2;
      unsettled := :"schema".check_partition(n);
      if unsettled is not null then
        return unsettled;
      end if;
      -- Its own tables first: no session writes there any more, so none waits while this does.
      foreach leaf in array array['outbox_deliveries_p' || n, 'outbox_events_p' || n] loop
        if :"schema".is_attached(leaf) then
          execute format('lock table only %I.%I in access exclusive mode', :'schema', leaf);
        end if;
      end loop;
      lock table only :"schema".outbox_deliveries, only :"schema".outbox_events in access exclusive mode;
    end loop;

    -- What was detached by hand is not ours to drop.
    if :"schema".is_attached('outbox_events_p' || n) then
      execute format('alter table %1$I.outbox_events detach partition %1$I.%2$I', :'schema', 'outbox_events_p' || n);
      if cardinality(letters) > 0 then
        columns := (select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
                     where attrelid = format('%I.outbox_events_p%s', :'schema', n)::regclass
                       and attnum > 0 and not attisdropped and attgenerated = '');
        execute format('insert into %1$I.outbox_events_default (%3$s) overriding system value
                        select %3$s from %1$I.%2$I where seq = any ($1)',
                       :'schema', 'outbox_events_p' || n, columns) using letters;
      end if;
      execute format('drop table %I.%I', :'schema', 'outbox_events_p' || n);
    end if;
    if :"schema".is_attached('outbox_deliveries_p' || n) then
      execute format('drop table %I.%I', :'schema', 'outbox_deliveries_p' || n);
    end if;
    update :"schema".outbox_partitions set dropped_at = now() where number = n;
    return jsonb_build_object('dropped', n, 'deadLetters', cardinality(letters));
  exception
    when lock_not_available or deadlock_detected then
      return jsonb_build_object('kept', 'locked');
    -- Something depends on it, a view for example. The partitions after it can be dropped all the same. The detail of the error
    -- names it. A temporary object, which any role can make that may use the schema, goes with its session.
    when others then
      get stacked diagnostics detail = pg_exception_detail;
      return jsonb_build_object('kept', 'failed', 'error', concat_ws('. ', sqlerrm, nullif(detail, '')));
  end;
end
$postcommit$;
revoke execute on function :"schema".drop_partition(bigint, double precision, integer) from public;
