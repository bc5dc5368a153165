-- Whether partition number `n` exists, with both of its tables attached.
--
-- requires: is_attached
create or replace function :"schema".has_partition(n bigint) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select :"schema".is_attached('outbox_events_p' || n) and :"schema".is_attached('outbox_deliveries_p' || n)
$postcommit$;
revoke execute on function :"schema".has_partition(bigint) from public;
