-- Removes what the events of a dropped partition left in other tables, a bounded number of rows per call. When nothing is left
-- it also removes the partition's own row. Returns how many rows it removed.
create or replace function :"schema".sweep_partition(n bigint, rows_max integer default 10000) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '2s' as $postcommit$
declare
  first constant bigint := n * 1000000000000;
  beyond constant bigint := (n + 1) * 1000000000000;
  failures integer;
  edits integer;
  letters integer;
begin
  if not exists (select from :"schema".outbox_partitions where number = n and dropped_at is not null) then
    return 0;
  end if;
  delete from :"schema".outbox_failures where ctid = any (array(
    select f.ctid from :"schema".outbox_failures f
     where f.seq >= first and f.seq < beyond
       and not exists (select from :"schema".outbox_events e where e.seq = f.seq)
     limit rows_max));
  get diagnostics failures = row_count;
  delete from :"schema".outbox_edits where ctid = any (array(
    select x.ctid from :"schema".outbox_edits x
     where x.seq >= first and x.seq < beyond
       and not exists (select from :"schema".outbox_events e where e.seq = x.seq)
     limit rows_max));
  get diagnostics edits = row_count;
  delete from :"schema".outbox_dead_letters where seq = any (array(
    select d.seq from :"schema".outbox_dead_letters d
     where d.seq >= first and d.seq < beyond and d.discarded_at is not null
       and not exists (select from :"schema".outbox_events e where e.seq = d.seq)
     limit rows_max));
  get diagnostics letters = row_count;
  if failures = 0 and edits = 0 and letters = 0 then
    delete from :"schema".outbox_partitions where number = n;
  end if;
  return failures + edits + letters;
end
$postcommit$;
revoke execute on function :"schema".sweep_partition(bigint, integer) from public;
