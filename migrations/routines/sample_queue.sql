-- Returns the input of a relay's low-water mark, or NULL unless `asked`. All values are of one snapshot except the number of
-- requeues, which is read before it: a transaction counted in that number already had its id, so the snapshot includes the
-- transaction.
--
-- requires: server_stamp, usable_low_water
create or replace function :"schema".sample_queue(low bigint, low_requeues bigint, low_server text, asked boolean) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  requeues_before bigint;
begin
  if not asked then
    return null;
  end if;
  requeues_before := (select last_value from :"schema".outbox_requeues);
  return (
    select json_build_object(
             'requeues', requeues_before::text,
             'server', :"schema".server_stamp(),
             'lowest', (select min(q.seq)::text from :"schema".outbox_queue q
                         where q.seq >= (select :"schema".usable_low_water(low, low_requeues, low_server))),
             'xmin', pg_snapshot_xmin(pg_current_snapshot())::text,
             'xmax', pg_snapshot_xmax(pg_current_snapshot())::text));
end
$postcommit$;
