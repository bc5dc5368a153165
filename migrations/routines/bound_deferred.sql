-- Returns the leading events of the given ones, lowest seq first, behind which at most `rows_max` events are deferred in total,
-- but at least the events of one key. Keeps the transactions of cancel_events and make_due short: they undefer those events in
-- the same transaction, and a thousand aggregates can have millions of them. The count is a snapshot; nothing is locked.
create or replace function :"schema".bound_deferred(given bigint[], rows_max integer) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $postcommit$
#variable_conflict use_column
declare
  front record;
  deferred bigint := 0;
begin
  for front in
    select q.key, min(q.seq) as seq from :"schema".outbox_queue q
     where q.seq = any (given) and q.key is not null group by q.key order by 2
  loop
    -- The same expression as in undefer.
    deferred := deferred + (select count(*) from (
      select from :"schema".outbox_queue q
       where q.key = front.key and q.seq > front.seq and coalesce(q.available_at, '-infinity') > now() limit rows_max) f);
    if deferred > rows_max and front.seq > (select min(s.seq) from unnest(given) as s (seq)) then
      return array(select s.seq from unnest(given) as s (seq) where s.seq < front.seq order by s.seq);
    end if;
  end loop;
  return given;
end
$postcommit$;
