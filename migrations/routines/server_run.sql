-- Identifies the server and what it holds in memory, for the claims of a relay: they commit without waiting for the disk. When one
-- backend is killed or crashes, PostgreSQL ends all of them and recovers from the log, but its start time and its timeline stay.
-- Recovery also discards the statistics, and so does an operator who resets those of the background writer: then a relay looks for
-- nothing. Every role may read when that was.
--
-- Not in server_stamp(), which every claim calls: on PostgreSQL 14, reading statistics after half a second without waits 10 ms for
-- the process that collects them. From 15 on they are in shared memory: 0.002 ms.
--
-- requires: server_stamp
create or replace function :"schema".server_run() returns text
language sql volatile parallel safe
return :"schema".server_stamp()
       || '/' || coalesce((extract(epoch from pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint, 0);
