-- Identifies the server, as far as a low-water mark depends on it: after a failover or a restore it may be another one,
-- on which the sequence of the log has gone back. Behind a transaction pooler no relay sees its connection change. The
-- queue's oid tells a schema that was dropped and made again.
create or replace function :"schema".server_stamp() returns text
language sql stable parallel safe
return (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
       || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
       || '/' || format('%I.outbox_queue', :'schema')::regclass::oid;
