-- Returns the seq of the next event (`next_seq`) and the lowest seq above all used ones (`needed_seq`). `next_seq` is lower
-- only if rows were copied to this server without the sequence, as logical replication does. The other sequence of this schema,
-- outbox_requeues, may lag: relays compare it only with values from the same server (server_stamp).
--
-- Rows are read before the sequence, so that an event emitted meanwhile does not look like a lag. All lookups use indexes; of
-- the delivery records only those that reach beyond the sequence are read. SECURITY DEFINER: a relay may not read the log's
-- sequence.
create or replace function :"schema".sequence_state(out next_seq bigint, out needed_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off set enable_seqscan = off as $postcommit$
declare
  reached constant bigint := (select last_value from :"schema".outbox_events_seq_seq);
begin
  needed_seq := greatest(
    (select max(seq) + 1 from :"schema".outbox_events),
    (select max(seq) + 1 from :"schema".outbox_queue),
    (select max(seq) + 1 from :"schema".outbox_shelf),
    (select max(seq) + 1 from :"schema".outbox_dead_letters),
    (select max(seq) + 1 from :"schema".outbox_failures),
    (select max(upper(seqs)) from :"schema".outbox_deliveries where seqs && int8range(reached, null)),
    -- Partitions before the open one are closed: retention may have checked or dropped them.
    (select max(number) * 1000000000000 from :"schema".outbox_partitions where opened_at is not null),
    1);
  next_seq := (select case when is_called then last_value + 1 else last_value end from :"schema".outbox_events_seq_seq);
end
$postcommit$;
revoke execute on function :"schema".sequence_state() from public;
