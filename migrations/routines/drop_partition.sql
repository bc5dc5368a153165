-- Drops a closed partition, log and record together, unless something in it is not delivered. Returns why it was kept.
--
-- The drop needs ACCESS EXCLUSIVE locks on the whole log and record, for milliseconds; if they are not granted soon, the caller
-- tries again later. The final check needs these locks: while they are held no event can be inserted, no dead letter retried
-- and no event replayed, because all of these read or write the log first. Queue and shelf are checked in one statement,
-- because events move between them; the dead letters after that, because events move from queue and shelf to there.
--
-- Unresolved dead letters survive: their events move to the default partition, which accepts their seqs once the partition is
-- detached. They are inserted into that table directly, so that no trigger queues them.
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
  perform :"schema".require_read_committed('partitions can be changed');
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

    -- Checked once before any session has to wait, and again under the locks, when nothing can change.
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
      -- Writers wait while they are copied, so their number and size are limited.
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
      -- Its own tables first: no session writes to them any more, so none waits while this statement does.
      foreach leaf in array array['outbox_deliveries_p' || n, 'outbox_events_p' || n] loop
        if :"schema".is_attached(leaf) then
          execute format('lock table only %I.%I in access exclusive mode', :'schema', leaf);
        end if;
      end loop;
      lock table only :"schema".outbox_deliveries, only :"schema".outbox_events in access exclusive mode;
    end loop;

    -- A partition that an operator detached is theirs to drop.
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
    -- Something depends on it, e.g. a view. Later partitions can still be dropped. The error detail names the object. A
    -- temporary object, which any role with access to the schema can create, goes away with its session.
    when others then
      get stacked diagnostics detail = pg_exception_detail;
      return jsonb_build_object('kept', 'failed', 'error', concat_ws('. ', sqlerrm, nullif(detail, '')));
  end;
end
$postcommit$;
revoke execute on function :"schema".drop_partition(bigint, double precision, integer) from public;
