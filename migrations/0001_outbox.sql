-- The outbox: a log that is written once, and a narrow queue of the work left. Tables, constraints, indexes, triggers and the view
-- outbox_status; the functions are in routines/.
--
-- :"schema" is replaced by the quoted schema name, :'schema' by the same as a literal. `npx postcommit sql` prints the
-- result. Function bodies are quoted by a tag that no schema name is likely to contain.
--
-- The trigger functions are created before the tables:
-- requires: enqueue, note_rows_requeued, note_truncated

-- The log ----------------------------------------------------------------------------------------------------------------

-- Append-only: PostgreSQL copies a row on every UPDATE, so everything that changes lives in outbox_queue. One table, or
-- partitioned by seq (see outbox_partitions).
create table :"schema".outbox_events (
  seq            bigint generated always as identity primary key,
  id             uuid not null default gen_random_uuid(),
  aggregate_type text not null,
  aggregate_id   text not null,
  event_type     text not null,
  schema_version integer not null default 1 check (schema_version > 0),
  ordering_key   text,
  payload        jsonb not null,
  headers        jsonb not null default '{}' check (jsonb_typeof(headers) = 'object'),
  available_at   timestamptz,
  created_at     timestamptz not null default clock_timestamp(),
  -- A claim reads these columns of a thousand events at once, so one row must not be able to make that fail or exceed the
  -- relay's memory. Payloads have no limit here: a claim leaves large ones out.
  constraint outbox_events_created_at_check
    check (created_at >= '0001-01-01 00:00:00+00' and created_at < '10000-01-01 00:00:00+00'),
  -- Every later event of the aggregate waits for a delayed one, so a delay ends within 366 days, as in emit(): see delayMsMax
  -- in src/emit/event.ts. A row that satisfies this keeps doing so as time passes, so dumps can be restored. By
  -- clock_timestamp(), because emit() adds delay_ms to that and a transaction may have begun long before. In hours: a day of
  -- an interval depends on the time zone. It also keeps infinity out, which marks what waits behind a blocking dead letter.
  constraint outbox_events_available_at_check
    check (available_at is null or (available_at >= '0001-01-01 00:00:00+00'
           and available_at <= clock_timestamp() + interval '8784 hours')),
  constraint outbox_events_size_check
    check (octet_length(aggregate_type) <= 1000 and octet_length(aggregate_id) <= 1000
           and octet_length(event_type) <= 1000 and coalesce(octet_length(ordering_key) <= 1000, true)
           and (headers = '{}' or octet_length(headers::text) <= 65536)),
  -- A name takes a relay about ten times its text: 3,000 events of 900 short names exceeded a heap of 256 MB.
  constraint outbox_events_header_count_check
    check (headers = '{}' or jsonb_array_length(jsonb_path_query_array(headers, '$.*')) <= 128)
);
comment on column :"schema".outbox_events.ordering_key is
  'What the event is ordered by: NULL means its aggregate, the empty string means no order at all.';
comment on column :"schema".outbox_events.available_at is
  'Not to be delivered before this time, at most 366 days ahead; NULL means at once.';

create unique index outbox_events_id_key on :"schema".outbox_events (id);
create index outbox_events_aggregate_idx on :"schema".outbox_events (aggregate_type, aggregate_id, seq);
create index outbox_events_type_idx on :"schema".outbox_events (event_type, seq);
-- created_at mostly follows seq, so a BRIN index finds a time range at almost no cost per insert. With seq as its second
-- column it also finds the events that do not follow: see bound_seqs.
create index outbox_events_created_at_idx on :"schema".outbox_events using brin (created_at, seq)
  with (pages_per_range = 32);

-- The queue --------------------------------------------------------------------------------------------------------------

-- The work left: one narrow row per undelivered event. A claim changes `claimed_by`, which no index covers, so it is a HOT update
-- (only taking over an event of a relay that ended changes `rescues` too); fillfactor 50 leaves each page the room for it.
create table :"schema".outbox_queue (
  seq          bigint primary key,
  key          bigint,
  claimed_by   bigint,
  available_at timestamptz,
  blocking     boolean not null default false,
  attempts     integer not null default 0,
  rescues      integer not null default 0,
  done         text[],
  owed         text[],
  replay_id    bigint,
  constraint outbox_queue_counts_check check (attempts >= 0 and rescues >= 0)
) with (
  fillfactor = 50,
  -- The queue turns over completely all the time: vacuum by a fixed number of dead rows, and without pausing.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
comment on column :"schema".outbox_queue.key is 'Hash of what the event is ordered by; NULL means no order.';
comment on column :"schema".outbox_queue.claimed_by is
  'Fencing token of the relay that claimed the event. NULL, or the token of a relay that has ended, means free.';
comment on column :"schema".outbox_queue.available_at is
  'NULL means ready. A time means delayed, in backoff, or deferred behind its key; infinity means behind a blocking dead letter.';
comment on column :"schema".outbox_queue.blocking is 'A dead letter that keeps its key back until an operator resolves it.';
comment on column :"schema".outbox_queue.rescues is
  'How often a relay ended while it held the event, since an attempt of the event last failed; see claim_many.';
comment on column :"schema".outbox_queue.done is 'Names of the targets that already have the event.';
comment on column :"schema".outbox_queue.owed is
  'Targets that a relay has decided it must still reach: destinations by name, handlers as type:name. NULL means that no relay has decided yet.';
comment on column :"schema".outbox_queue.replay_id is
  'Tells a replay from every earlier delivery of the event, and is part of what brokers deduplicate by. NULL means that the event is not replayed.';

-- Ready rows by seq and waiting rows by due time are two indexes, so that a claim never walks over rows in backoff.
-- The second column is the event's shard: a relay that keeps to its own shards (claim_many) passes over the entries of
-- others without fetching their rows.
create index outbox_queue_ready_idx on :"schema".outbox_queue (seq, (coalesce(key, hashint8extended(seq, 0)) & 1023)) where available_at is null;
create index outbox_queue_due_idx on :"schema".outbox_queue (available_at, seq) where available_at is not null;
-- Events that were claimed by two or more relays that ended: see claim_many. Almost always empty.
create index outbox_queue_suspect_idx on :"schema".outbox_queue (rescues, seq) where rescues > 1;
create index outbox_queue_key_idx on :"schema".outbox_queue (key, seq) where key is not null;
-- Few rows owe anything: for `forget`, and for finding events whose handler no relay has.
create index outbox_queue_owed_idx on :"schema".outbox_queue (seq) where owed is not null;

-- The record -------------------------------------------------------------------------------------------------------------

-- One row per settled batch and outcome, not per event. A drain settles mostly contiguous seqs, so a multirange of five hundred
-- of them is some thirty bytes. Partitioned like the log, by its lowest seq.
create table :"schema".outbox_deliveries (
  delivered_at timestamptz not null default now(),
  relay        bigint not null,
  attempts     integer not null check (attempts > 0),
  targets      text[] not null,
  seqs         int8multirange not null check (not isempty(seqs))
);
create index outbox_deliveries_seqs_idx on :"schema".outbox_deliveries using gist (seqs);
create index outbox_deliveries_delivered_at_idx on :"schema".outbox_deliveries using brin (delivered_at);

-- Every failed attempt, for as long as the event is kept. Relay 0 is an operator.
create table :"schema".outbox_failures (
  seq       bigint not null,
  attempt   integer not null check (attempt >= 0),
  failed_at timestamptz not null default now(),
  relay     bigint not null,
  target    text,
  code      text,
  error     text not null
);
create index outbox_failures_seq_idx on :"schema".outbox_failures (seq, attempt);

-- What failed for good. Kept out of the queue so that a thousand dead letters never slow a claim.
create table :"schema".outbox_dead_letters (
  seq          bigint primary key,
  dead_at      timestamptz not null default now(),
  reason       text not null check (reason in ('exhausted', 'rejected', 'no_handler', 'crashed', 'forgotten', 'cancelled')),
  attempts     integer not null check (attempts >= 0),
  done         text[],
  owed         text[],
  replay_id    bigint,
  key          bigint,
  blocking     boolean not null default false,
  error        text not null,
  discarded_at timestamptz
);
comment on column :"schema".outbox_dead_letters.blocking is
  'Whether its key waits until an operator resolves it. Its row in the queue, which says so too, is what keeps the key back.';
comment on column :"schema".outbox_dead_letters.discarded_at is
  'When an operator gave the event up. The row stays, so that its story can be told.';
create index outbox_dead_letters_dead_at_idx on :"schema".outbox_dead_letters (dead_at, seq);

-- Destinations -----------------------------------------------------------------------------------------------------------

-- The shelf: one row per event and destination it still waits for. An outage is not poison (G6): an event that has
-- reached all of its other targets leaves the queue, so that its aggregate goes on to those, and comes back when its
-- destination does. Kept out of the queue so that millions of waiting events never slow a claim.
create table :"schema".outbox_shelf (
  destination text not null,
  seq         bigint not null,
  key         bigint,
  attempts    integer not null check (attempts >= 0),
  rescues     integer not null check (rescues >= 0),
  done        text[],
  replay_id   bigint,
  shelved_at  timestamptz not null default now(),
  primary key (destination, seq)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
-- A claim asks, for each event, whether an earlier one of its key waits for a destination.
create index outbox_shelf_key_idx on :"schema".outbox_shelf (key, destination, seq) where key is not null;
create index outbox_shelf_seq_idx on :"schema".outbox_shelf (seq);

-- What all relays must agree on about a destination: the circuit breaker, the operator's pause, the rate of a drain.
create table :"schema".outbox_destinations (
  destination  text primary key,
  paused_at    timestamptz,
  reason       text,
  state        text not null default 'closed' check (state in ('closed', 'open')),
  opened_at    timestamptz,
  error        text,
  probes       integer not null default 0 check (probes >= 0),
  probe_at     timestamptz,
  unshelved_at timestamptz,
  changed_at   timestamptz not null default now()
);
comment on column :"schema".outbox_destinations.reason is 'Why an operator paused it.';
comment on column :"schema".outbox_destinations.error is 'Why the circuit is open: the broker''s own words.';
comment on column :"schema".outbox_destinations.probes is
  'Probes that failed, or were followed by another outage, since the last event that got through.';
comment on column :"schema".outbox_destinations.unshelved_at is
  'When events were last taken from the shelf. Bounds the rate of a drain, whatever the number of relays.';

-- Relays -----------------------------------------------------------------------------------------------------------------

-- Which relays are alive. The token fences: it is new each time a relay registers, and a relay marked lost never gets it
-- back. It is no sequence: a sequence goes back with a restore, or with a failover that loses the last registrations, and
-- would then give one token to two relays that both run. Milliseconds and 20 random bits, so tokens still sort by age.
create table :"schema".outbox_relays (
  token        bigint primary key default ((extract(epoch from clock_timestamp()) * 1000)::bigint << 20)
                 + floor(random() * 1048576)::bigint,
  name         text not null,
  host         text not null,
  pid          integer not null,
  started_at   timestamptz not null default now(),
  heartbeat_at timestamptz not null default now(),
  lease_until  timestamptz not null,
  ended_at     timestamptz,
  ended_as     text check (ended_as in ('stopped', 'lost')),
  version      text,
  targets      text[] not null default '{}',
  fingerprint  text,
  stats        jsonb not null default '{}'
) with (fillfactor = 50);
comment on column :"schema".outbox_relays.version is 'Version of the package that the relay runs.';
comment on column :"schema".outbox_relays.targets is
  'What the relay can deliver to: destinations by name, handlers as type:name.';
comment on column :"schema".outbox_relays.fingerprint is
  'Hash of its targets, route and retry settings: relays that differ in it may treat an event differently.';
-- Every claim and every heartbeat asks which relays are alive, among all that ever were. A heartbeat changes nothing that this
-- index covers, so it stays a HOT update.
create index outbox_relays_alive_idx on :"schema".outbox_relays (token) where ended_at is null;

-- How often events came back into the queue, and how often a table was truncated: see note_requeues().
create sequence :"schema".outbox_requeues;
-- last_value is 1 before the first nextval() and after it: without this the first requeue would not be noticed.
do $postcommit$ begin perform nextval(format('%I.outbox_requeues', :'schema')::regclass); end $postcommit$;

-- One relay at a time for a named duty. The epoch fences: it grows with every change of owner.
create table :"schema".outbox_leadership (
  name        text primary key,
  epoch       bigint not null default 1 check (epoch > 0),
  owner       bigint not null,
  acquired_at timestamptz not null default now(),
  lease_until timestamptz not null
);

-- Maintenance ------------------------------------------------------------------------------------------------------------

-- One row per task. Only the leader writes here, fenced by its epoch: a leader that was deposed while it worked cannot
-- write over what its successor did.
create table :"schema".outbox_maintenance (
  task         text primary key,
  epoch        bigint not null check (epoch > 0),
  ran_at       timestamptz not null default now(),
  duration_ms  integer not null check (duration_ms >= 0),
  changed      bigint not null check (changed >= 0),
  note         text,
  error        text,
  failures     integer not null default 0 check (failures >= 0),
  succeeded_at timestamptz,
  cursor_seq   bigint not null default 0 check (cursor_seq >= 0),
  cycle_at     timestamptz
);
comment on column :"schema".outbox_maintenance.changed is 'Rows that the last run removed, or other things it did.';
comment on column :"schema".outbox_maintenance.note is 'What the last run left undone, and why.';
comment on column :"schema".outbox_maintenance.error is 'Why the last run failed; NULL when it did not.';
comment on column :"schema".outbox_maintenance.failures is 'Runs that failed in a row.';
comment on column :"schema".outbox_maintenance.cursor_seq is
  'How far the log has been searched in this cycle. The next cycle looks again at what was passed over.';
comment on column :"schema".outbox_maintenance.cycle_at is 'When this cycle began.';

create table :"schema".outbox_settings (
  name       text primary key,
  value      text not null,
  changed_at timestamptz not null default now(),
  constraint outbox_settings_partitions_check check (name <> 'partitions' or value in ('day', 'month'))
);
comment on table :"schema".outbox_settings is
  'What holds for the whole outbox. partitions: day or month; without a row the log is not partitioned.';

-- Partitions: the log and the record in pieces that retention drops whole, instead of deleting row by row.
--
-- By seq, not by time: a claim looks an event up by its seq alone, and a log that is partitioned by created_at would be
-- probed in every piece. Each partition has room for 10^12 seqs: number n holds n * 10^12 and up. What makes it a day or
-- a month is rotation: when the calendar unit is over, the sequence is moved on to the next partition's first seq. Writers
-- pay nothing for it, a clock that is set back or ahead only rotates late or early, and where the next partition cannot
-- be made, the sequence is not moved and writers go on in the one they have. A seq that has no partition, because the
-- partition was detached by hand, goes into the default partition.
--
-- Functions that change partitions take short locks only: a session that waits for an ACCESS EXCLUSIVE lock makes every writer
-- wait behind it. They run with the rights of their owner, because only the owner of a table may attach to it or drop it;
-- other roles need EXECUTE.
create table :"schema".outbox_partitions (
  number     bigint primary key check (number >= 0),
  created_at timestamptz not null default now(),
  awaits     text[],
  opened_at  timestamptz,
  closed_at  timestamptz,
  checked_to bigint,
  dropped_at timestamptz
);
comment on table :"schema".outbox_partitions is
  'One row per partition: outbox_events_p<number> with its outbox_deliveries_p<number>.';
comment on column :"schema".outbox_partitions.awaits is
  'Transactions that may not know it yet: it is not opened before they have ended. NULL means that they were not determined yet.';
comment on column :"schema".outbox_partitions.opened_at is 'Since when events go into it; NULL means that it is a spare.';
comment on column :"schema".outbox_partitions.closed_at is 'When the next one was opened. Retention counts from here.';
comment on column :"schema".outbox_partitions.checked_to is
  'Every event of the partition below this seq is delivered, queued, shelved or a dead letter: see check_partition().';
comment on column :"schema".outbox_partitions.dropped_at is
  'When it was dropped. The row stays until what is left of its events elsewhere (failures, given up dead letters) is gone.';

-- Consumers --------------------------------------------------------------------------------------------------------------

-- The inbox.
create table :"schema".processed_events (
  consumer_name text not null,
  event_id      uuid not null,
  processed_at  timestamptz not null default now(),
  primary key (consumer_name, event_id)
);
-- Not BRIN: where pruning frees pages that new rows then fill, a block range keeps its oldest time, and every run would
-- read it again.
create index processed_events_processed_at_idx on :"schema".processed_events (processed_at);

-- Triggers ---------------------------------------------------------------------------------------------------------------

-- All of them fire also with session_replication_role = replica, which bulk loaders and replication tools set: an event without
-- a queue row is never delivered.

create trigger outbox_events_enqueue after insert on :"schema".outbox_events
  referencing new table as emitted for each statement execute function :"schema".enqueue();
-- A transaction has its id before it draws a seq: the relays' low-water mark waits for the transactions that may still
-- bring a lower seq, and knows them by their ids (src/relay/lane/low-water.ts). Without this a row's seq is drawn first, and
-- its other values may take their time. The condition does it; it never holds, and the function is never called.
create trigger outbox_events_begin before insert on :"schema".outbox_events
  for each statement when (pg_current_xact_id() is null) execute function :"schema".enqueue();
create trigger outbox_events_truncate before truncate on :"schema".outbox_events
  for each statement execute function :"schema".note_truncated();
alter table :"schema".outbox_events enable always trigger outbox_events_enqueue;
alter table :"schema".outbox_events enable always trigger outbox_events_begin;
alter table :"schema".outbox_events enable always trigger outbox_events_truncate;

create trigger outbox_queue_truncate before truncate on :"schema".outbox_queue
  for each statement execute function :"schema".note_truncated();
alter table :"schema".outbox_queue enable always trigger outbox_queue_truncate;

create trigger outbox_shelf_requeue after delete on :"schema".outbox_shelf
  referencing old table as left_for_queue for each statement execute function :"schema".note_rows_requeued();
alter table :"schema".outbox_shelf enable always trigger outbox_shelf_requeue;

create trigger outbox_dead_letters_requeue after delete on :"schema".outbox_dead_letters
  referencing old table as left_for_queue for each statement execute function :"schema".note_rows_requeued();
alter table :"schema".outbox_dead_letters enable always trigger outbox_dead_letters_requeue;

-- The view ---------------------------------------------------------------------------------------------------------------

-- One row per event with the columns people expect of an outbox. SENT is proven by a delivery record, never assumed. The record
-- of an event is searched in the event's own partition only.
--
-- updated_at is the latest change of the status that is recorded. A claim records no time, because a row that has more written to
-- it costs every event; so PROCESSING has the latest time that is known to be before the claim. The same holds for an event that
-- came back into the queue from the shelf or from the dead letters.
create view :"schema".outbox_status as
select e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.schema_version, e.payload, e.headers,
       case
         when d.seq is not null then 'FAILED'
         when q.seq is not null and r.token is not null then 'PROCESSING'
         when q.seq is not null or h.attempts is not null then 'PENDING'
         when s.delivered_at is not null then 'SENT'
         else 'PENDING'
       end as status,
       coalesce(q.attempts, h.attempts, d.attempts, s.attempts - 1, 0) as retry_count,
       case when q.available_at < 'infinity' then q.available_at end as next_retry_at,
       e.created_at,
       s.delivered_at as published_at,
       f.error as last_error,
       case when d.seq is null and q.seq is null and h.attempts is null then s.delivered_at end as processed_at,
       case
         when d.seq is not null then greatest(d.dead_at, d.discarded_at)
         when q.seq is not null then greatest(e.created_at, f.failed_at, to_timestamp(q.replay_id / 1000000.0), r.started_at)
         else greatest(e.created_at, h.shelved_at, s.delivered_at)
       end as updated_at
  from :"schema".outbox_events e
  left join :"schema".outbox_queue q on q.seq = e.seq
  left join :"schema".outbox_relays r on r.token = q.claimed_by and r.ended_at is null
  left join :"schema".outbox_dead_letters d on d.seq = e.seq
  left join lateral (
    select x.attempts, x.shelved_at from :"schema".outbox_shelf x where x.seq = e.seq order by x.shelved_at desc limit 1
  ) h on true
  left join lateral (
    select x.delivered_at, x.attempts from :"schema".outbox_deliveries x
     where x.seqs @> e.seq
       and lower(x.seqs) >= e.seq / 1000000000000 * 1000000000000
       and lower(x.seqs) < (e.seq / 1000000000000 + 1) * 1000000000000
     order by x.delivered_at desc limit 1
  ) s on true
  left join lateral (
    -- By time first: a dead letter that is retried starts again at attempt 1.
    select x.error, x.failed_at from :"schema".outbox_failures x
     where x.seq = e.seq order by x.failed_at desc, x.attempt desc limit 1
  ) f on true;
