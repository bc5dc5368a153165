-- Returns the lowest seq in a time range and the first seq after its highest, so that a statement can walk the range along the
-- primary key. A NULL time means no limit on that side; the bound is NULL too.
--
-- The guesses are where the range would begin and end if created_at grew with seq. Imported history and a clock that was set
-- back break that, so this function searches for events of the range outside of the guesses. The BRIN index stores the extremes
-- of both columns per block range: where created_at follows seq, only the block ranges at the guesses match. The planner
-- assumes that the two conditions are independent, expects a quarter of the log, and would read that along the primary key (8 s
-- in the middle of 10 million events, instead of 30 ms); hence the settings.
--
-- Two kinds of block ranges are read in full and are slower: those that vacuum has not summarised yet, and those where new rows
-- have replaced pruned ones. The latter do not occur in partitions, which are dropped whole.
create or replace function :"schema".find_seq_range(
  created_from timestamptz, created_before timestamptz, guess_from bigint, guess_before bigint
) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off as $postcommit$
declare
  since constant timestamptz := coalesce(created_from, '-infinity');
  until constant timestamptz := coalesce(created_before, 'infinity');
  lowest bigint;
  highest bigint;
begin
  if created_from is not null then
    select min(e.seq) into lowest from :"schema".outbox_events e
     where e.created_at >= since and e.created_at < until and e.seq < guess_from;
  end if;
  if created_before is not null then
    select max(e.seq) into highest from :"schema".outbox_events e
     where e.created_at >= since and e.created_at < until and e.seq >= guess_before;
  end if;
  return jsonb_build_object(
    'from', case when created_from is not null then coalesce(lowest, guess_from)::text end,
    'before', case when created_before is not null then coalesce(highest + 1, guess_before)::text end);
end
$postcommit$;
