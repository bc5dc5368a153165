-- Searches a closed partition for unqueued events, at most 2,000,000 seqs per call, and continues where the last call ended. Returns
-- why the partition must stay, or NULL if every event in it is accounted for. Seqs that were checked need no second check: no
-- seq is drawn from a closed partition, and the lock waits for transactions that insert into it.
--
-- requires: find_unqueued, is_attached
create or replace function :"schema".check_partition(n bigint) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  beyond constant bigint := (n + 1) * 1000000000000;
  leaf constant text := 'outbox_events_p' || n;
  step constant bigint := 100000;
  reached bigint := coalesce((select checked_to from :"schema".outbox_partitions where number = n), n * 1000000000000);
  found bigint;
  unqueued integer := 0;
begin
  if reached >= beyond or not :"schema".is_attached(leaf) then
    return null;
  end if;
  execute format('lock table only %I.%I in share mode', :'schema', leaf);
  for pass in 1 .. 20 loop
    execute format('select seq from %I.%I where seq >= $1 order by seq limit 1', :'schema', leaf) into found using reached;
    reached := coalesce(found, beyond);
    exit when reached >= beyond;
    unqueued := (select count(*) from :"schema".find_unqueued(reached, least(reached + step, beyond), 1000));
    exit when unqueued > 0;
    reached := least(reached + step, beyond);
  end loop;
  update :"schema".outbox_partitions set checked_to = reached where number = n;
  if unqueued > 0 then
    return jsonb_build_object('kept', 'unqueued', 'count', unqueued);
  elsif reached < beyond then
    return jsonb_build_object('kept', 'unchecked');
  end if;
  return null;
end
$postcommit$;
revoke execute on function :"schema".check_partition(bigint) from public;
