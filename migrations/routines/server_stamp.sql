-- Identifies the server for a low-water mark: after a failover or a restore it may be a different one, on which the sequence of
-- the log has gone back. Behind a transaction pooler a relay does not notice that its connection changed. The queue's oid
-- identifies a schema that was dropped and created again.
create or replace function :"schema".server_stamp() returns text
language sql volatile parallel safe
return (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
       || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
       || '/' || :'schema.outbox_queue'::regclass::oid;
