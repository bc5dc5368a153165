-- Removes delivered events from the queue and records the delivery, for the relay that claimed them. The seqs are grouped by
-- the targets they were delivered to. Returns the seqs that are not under this token: another relay owns them now (G5).
--
-- A delivery record never spans two partitions of the log (10^12 seqs each), so that both can be dropped together.
--
-- Rows are locked in order of seq, as cancel_events() locks them: else each could wait for a row that the other has. Several groups
-- need a statement of its own for that. A deletion locks its rows in that order anyway, which spares one group that statement.
--
-- The settings are those of claim_many(), for the same reasons.
create or replace function :"schema".settle(relay bigint, seqs bigint[], group_sizes integer[], group_targets jsonb)
returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
declare
  group_seqs bigint[];
  group_names text[];
  found_seqs bigint[];
  found_count bigint;
  missed bigint[] := '{}';
  first integer := 1;
  size integer;
begin
  if cardinality(group_sizes) > 1 then
    perform from :"schema".outbox_queue q
      where q.seq = any (seqs) and q.claimed_by = settle.relay order by q.seq for update;
  end if;
  for g in 1 .. cardinality(group_sizes) loop
    size := group_sizes[g];
    group_seqs := seqs[first : first + size - 1];
    group_names := array(select jsonb_array_elements_text(group_targets -> (g - 1)));
    with gone as (
      delete from :"schema".outbox_queue q where q.seq = any (group_seqs) and q.claimed_by = settle.relay
      returning q.seq, q.attempts
    ), recorded as (
      insert into :"schema".outbox_deliveries (relay, attempts, targets, seqs)
      select settle.relay, o.attempts + 1, group_names, range_agg(int8range(o.seq, o.seq, '[]'))
        from gone o group by o.attempts, o.seq / 1000000000000
    )
    select count(*), case when count(*) < size then coalesce(array_agg(o.seq), '{}') end
      into found_count, found_seqs from gone o;
    if found_count < size then
      missed := missed || array(select unnest(group_seqs) except select unnest(found_seqs));
    end if;
    first := first + size;
  end loop;
  return missed;
end
$postcommit$;
