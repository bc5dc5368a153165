-- The outbox: an append-only log, and a narrow queue of undelivered events. Tables, constraints, indexes, triggers and the view
-- outbox_status; the functions are in routines/.
--
-- :"schema" is replaced by the quoted schema name, :'schema' by the same as a literal. `npx postcommit sql` prints the
-- result. Function bodies are quoted by a tag that no schema name is likely to contain.
--
-- The functions of triggers and constraints are created before the tables:
-- requires: check_event, enqueue, note_rows_requeued, note_truncated

-- The log ----------------------------------------------------------------------------------------------------------------

-- Append-only: PostgreSQL copies a row on every UPDATE, so everything that changes is in outbox_queue. One table, or
-- partitioned by seq (see outbox_partitions).
create table :"schema".outbox_events (
  seq            bigint generated always as identity primary key,
  id             uuid not null default gen_random_uuid(),
  aggregate_type text not null,
  aggregate_id   text not null,
  event_type     text not null,
  schema_version integer not null default 1,
  ordering_key   text,
  payload        jsonb not null,
  headers        jsonb not null default '{}',
  available_at   timestamptz,
  created_at     timestamptz not null default clock_timestamp(),
  attempts_max   smallint,
  queue          text collate "C",
  constraint outbox_events_limits_check
    check (:"schema".check_event(aggregate_type, aggregate_id, event_type, schema_version, ordering_key, headers, available_at,
                                 created_at, attempts_max, queue))
);
comment on column :"schema".outbox_events.ordering_key is
  'What the event is ordered by: NULL means its aggregate, the empty string means no order at all.';
comment on column :"schema".outbox_events.available_at is
  'Not delivered before this time, at most 366 days ahead; NULL means immediately.';
comment on column :"schema".outbox_events.attempts_max is
  'After this many failed attempts the event is a dead letter; NULL means as the retry policies of its targets say.';
comment on column :"schema".outbox_events.queue is
  'The queue that delivers it: 1 to 100 letters, digits, dots, hyphens and underscores. NULL means the queue default.';

create unique index outbox_events_id_key on :"schema".outbox_events (id);
create index outbox_events_aggregate_idx on :"schema".outbox_events (aggregate_type, aggregate_id, seq);
create index outbox_events_type_idx on :"schema".outbox_events (event_type, seq);
-- created_at mostly follows seq, so a BRIN index finds a time range at almost no cost per insert. With seq as its second column
-- it also finds the events that are out of order: see find_seq_range.
create index outbox_events_created_at_idx on :"schema".outbox_events using brin (created_at, seq)
  with (pages_per_range = 32);

-- The queue --------------------------------------------------------------------------------------------------------------

-- One narrow row per undelivered event. A claim changes `claimed_by`, which no index covers, so it is a HOT update (only taking
-- over an event of an ended relay changes `takeovers` too); fillfactor 50 leaves room for it on each page.
create table :"schema".outbox_queue (
  seq          bigint primary key,
  key          bigint,
  claimed_by   bigint,
  available_at timestamptz,
  blocking     boolean not null default false,
  attempts     integer not null default 0,
  takeovers    integer not null default 0,
  done         text[],
  owed         text[],
  replay_id    bigint,
  queue        text collate "C" not null default 'default',
  constraint outbox_queue_counts_check check (attempts >= 0 and takeovers >= 0)
) with (
  fillfactor = 50,
  -- The queue turns over completely all the time: vacuum after a fixed number of dead rows, without pauses.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
-- ANALYZE of a queue in which a few keys have a long backlog finds a few distinct keys. A condition on the key then seems to select
-- nothing, and the predecessor of each claimed event was looked for along the primary key: a claim of 50 events of other keys
-- read 2,500,000 rows of a backlog of 50,000. So the planner is told that keys are distinct, whatever ANALYZE finds.
alter table :"schema".outbox_queue alter column key set (n_distinct = -1);
comment on column :"schema".outbox_queue.key is 'Hash of what the event is ordered by; NULL means no order.';
comment on column :"schema".outbox_queue.claimed_by is
  'Fencing token of the relay that claimed the event. NULL, or the token of a relay that has ended, means free. 0: cancelled during a delivery that has not ended yet, see outbox_cancellations.';
comment on column :"schema".outbox_queue.available_at is
  'NULL means ready. A time means delayed, in backoff, or deferred behind its key; infinity means behind a blocking dead letter.';
comment on column :"schema".outbox_queue.blocking is 'A dead letter that blocks its key until an operator resolves it.';
comment on column :"schema".outbox_queue.takeovers is
  'How often the event was taken over from a relay that ended, at most 4, plus how often a trial of it began, since the last failed attempt; see claim_many.';
comment on column :"schema".outbox_queue.done is 'Names of the targets that already have the event.';
comment on column :"schema".outbox_queue.owed is
  'Targets that a relay has decided it must still reach: destinations by name, handlers as type:name. NULL means that no relay has decided yet.';
comment on column :"schema".outbox_queue.replay_id is
  'Distinguishes a replay or an edit from earlier deliveries, and is part of the deduplication id. NULL means neither.';
comment on column :"schema".outbox_queue.queue is 'The named queue: a relay claims only from the queues that it works.';

-- Separate indexes for ready rows by seq and waiting rows by due time, so that a claim never walks over rows in backoff. Both
-- begin with the named queue: a claim never walks over the rows of another one. The last column of the first is the event's
-- shard: a claim in the relay's own shards (claim_many) skips the entries of others without fetching their rows.
create index outbox_queue_ready_idx on :"schema".outbox_queue (queue, seq, (coalesce(key, hashint8extended(seq, 0)) & 1023)) where available_at is null;
create index outbox_queue_due_idx on :"schema".outbox_queue (queue, available_at, seq) where available_at is not null;
-- Suspects: events that two or more relays had claimed when they ended, see claim_many. Almost always empty.
create index outbox_queue_suspect_idx on :"schema".outbox_queue (queue, takeovers, seq) where takeovers > 1;
create index outbox_queue_key_idx on :"schema".outbox_queue (key, seq) where key is not null;
-- Parked events, and the blocking dead letters that they wait for: a key's first entry tells whether an event of it is parked, and
-- its first one with `blocking` where its dead letter is, however many events wait. See unpark(). COALESCE in the condition, and in
-- the statements, keeps the planner from using the index above instead, which it would read from end to end.
create index outbox_queue_parked_idx on :"schema".outbox_queue (key, blocking, seq) where coalesce(available_at, '-infinity') = 'infinity';
-- Few rows owe targets. For `forget`, and for finding events whose handler no relay has.
create index outbox_queue_owed_idx on :"schema".outbox_queue (seq) where owed is not null;

-- The record -------------------------------------------------------------------------------------------------------------

-- One row per settled batch and outcome, not per event. A drain settles mostly contiguous seqs, so a multirange of five hundred
-- of them takes some thirty bytes. Partitioned like the log, by its lowest seq.
create table :"schema".outbox_deliveries (
  delivered_at timestamptz not null default now(),
  relay        bigint not null,
  attempts     integer not null check (attempts > 0),
  targets      text[] not null,
  seqs         int8multirange not null check (not isempty(seqs))
);
create index outbox_deliveries_seqs_idx on :"schema".outbox_deliveries using gist (seqs);
create index outbox_deliveries_delivered_at_idx on :"schema".outbox_deliveries using brin (delivered_at);

-- Every failed attempt, kept as long as the event. Relay 0 means an operator.
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

-- Events that failed for good. A separate table, so that a thousand dead letters do not slow down claims.
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
  discarded_at timestamptz,
  cancelled_by text,
  cancel_note  text,
  queue        text collate "C"
);
comment on column :"schema".outbox_dead_letters.blocking is
  'Whether its key waits until an operator resolves it. Its queue row, also marked as blocking, is what blocks the key.';
comment on column :"schema".outbox_dead_letters.discarded_at is
  'When an operator discarded it. The row stays as history.';
comment on column :"schema".outbox_dead_letters.cancelled_by is 'Who cancelled it: as given, or the database role.';
comment on column :"schema".outbox_dead_letters.cancel_note is 'Why, as given.';
comment on column :"schema".outbox_dead_letters.queue is 'The queue that it returns to; NULL means default.';
create index outbox_dead_letters_dead_at_idx on :"schema".outbox_dead_letters (dead_at, seq);
-- Few dead letters block their key, and the dashboard lists them every few seconds.
create index outbox_dead_letters_blocking_idx on :"schema".outbox_dead_letters (seq) where blocking;

-- Payloads that operators have corrected: see edit_dead_letter(). The log keeps the payload as it was emitted; a relay delivers
-- the last edit. Almost always empty, and a claim reads it only when it is not.
create table :"schema".outbox_edits (
  seq           bigint not null,
  -- Their order, from 1 on: the clock of a new primary may be behind.
  number        integer not null,
  edited_at     timestamptz not null default clock_timestamp(),
  payload       jsonb not null,
  edited_by     text not null,
  database_role text not null,
  reason        text,
  primary key (seq, number)
);
comment on column :"schema".outbox_edits.edited_by is 'Who edited it: as given, or the database role.';
comment on column :"schema".outbox_edits.database_role is 'The database role that logged in.';

-- What operators have done, with the CLI, the dashboard or code: one row per operation. A row without finished_at is of an
-- operation that is running, or whose process ended before it did. Written by start_operation() and finish_operation() only.
create table :"schema".outbox_audit (
  -- From the time, with three random digits: a sequence may lag after a restore or a failover, and no operation may fail for that.
  id            bigint primary key default (extract(epoch from clock_timestamp()) * 1000000)::bigint * 1000 + floor(random() * 1000)::bigint,
  started_at    timestamptz not null default now(),
  finished_at   timestamptz,
  operator      text not null,
  database_role text not null,
  action        text not null,
  target        jsonb not null default '{}',
  reason        text,
  changed       bigint check (changed >= 0),
  error         text
);
comment on column :"schema".outbox_audit.operator is 'Who: as given, or the database role.';
comment on column :"schema".outbox_audit.database_role is
  'The database role that logged in. An operator chooses the name in the column operator, and not this one.';
comment on column :"schema".outbox_audit.target is 'What the operation selected, e.g. ids or conditions.';
comment on column :"schema".outbox_audit.changed is 'How many events or rows it changed.';

-- Destinations -----------------------------------------------------------------------------------------------------------

-- The shelf: one row per event and destination it still waits for. An outage is not poison (G6): an event that has reached all
-- of its other targets leaves the queue, so that later events of its aggregate can reach those, and returns when its
-- destination is up again. A separate table, so that millions of waiting events do not slow down claims.
create table :"schema".outbox_shelf (
  destination text not null,
  seq         bigint not null,
  key         bigint,
  attempts    integer not null check (attempts >= 0),
  takeovers   integer not null check (takeovers >= 0),
  done        text[],
  replay_id   bigint,
  shelved_at  timestamptz not null default now(),
  queue       text collate "C",
  primary key (destination, seq)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
-- As in the queue: a claim looks for earlier events of its keys here.
alter table :"schema".outbox_shelf alter column key set (n_distinct = -1);
comment on column :"schema".outbox_shelf.queue is 'The queue that it returns to; NULL means default.';
-- A claim checks for each event whether an earlier one of its key waits for a destination.
create index outbox_shelf_key_idx on :"schema".outbox_shelf (key, destination, seq) where key is not null;
create index outbox_shelf_seq_idx on :"schema".outbox_shelf (seq);

-- Destination state shared by all relays: the circuit breaker, the operator's pause, the rate of a drain.
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
comment on column :"schema".outbox_destinations.error is 'Why the circuit is open, as the broker reported it.';
comment on column :"schema".outbox_destinations.probes is
  'Probes that failed, or were followed by another outage, since the destination last processed an event.';
comment on column :"schema".outbox_destinations.unshelved_at is
  'When events were last unshelved. Bounds the rate of a drain over all relays.';

-- Queues -----------------------------------------------------------------------------------------------------------------

-- What operators have set for named queues: see pause_queue(). A queue needs no row. The rule for names is that of outbox_events.
create table :"schema".outbox_queue_states (
  queue      text collate "C" primary key,
  paused_at  timestamptz,
  reason     text,
  changed_at timestamptz not null default now(),
  constraint outbox_queue_states_queue_check check (octet_length(queue) <= 100 and queue ~ '^[A-Za-z0-9._-]+$')
);
comment on column :"schema".outbox_queue_states.paused_at is 'Since when relays claim nothing from it; NULL means not paused.';
comment on column :"schema".outbox_queue_states.reason is 'Why an operator paused it.';

-- Relays -----------------------------------------------------------------------------------------------------------------

-- Which relays are alive. The token fences: it is new each time a relay registers, and a relay marked lost never gets it back.
-- Not a sequence: a restore, or a failover that loses the last registrations, sets a sequence back, and two running relays
-- would get the same token. Milliseconds and 20 random bits, so tokens still sort by age.
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
  stats        jsonb not null default '{}',
  queues       text[] not null default '{default}',
  session_lock boolean not null default false,
  lock_free_since timestamptz,
  host_id      text,
  process_id   text
) with (fillfactor = 50);
comment on column :"schema".outbox_relays.session_lock is
  'Whether a session of the relay holds its advisory lock. If not, as behind a transaction pooler, only the lease shows that it is alive.';
comment on column :"schema".outbox_relays.lock_free_since is
  'When another relay found the advisory lock free; NULL again once the relay holds it.';
comment on column :"schema".outbox_relays.host_id is 'Identifies the boot and the pid namespace in which pid is valid.';
comment on column :"schema".outbox_relays.process_id is 'Identifies the process among those that have had its pid.';
comment on column :"schema".outbox_relays.version is 'Version of the package that the relay runs.';
comment on column :"schema".outbox_relays.targets is
  'What the relay can deliver to: destinations by name, handlers as type:name.';
comment on column :"schema".outbox_relays.fingerprint is
  'Hash of its targets, route and retry settings: relays that differ in it may treat an event differently.';
comment on column :"schema".outbox_relays.queues is 'The queues that the relay works.';
-- Every claim and every heartbeat reads which relays are alive, among all that ever were. A heartbeat changes nothing that this
-- index covers, so it stays a HOT update.
create index outbox_relays_alive_idx on :"schema".outbox_relays (token) where ended_at is null;

-- What handlers in flight have reported about their work, at most one write per second and relay. A row belongs to its event
-- only while that relay has claimed the event: readers compare the two. The relay deletes it when the handler has ended, and
-- maintenance deletes those of relays that crashed.
create table :"schema".outbox_progress (
  seq         bigint not null,
  handler     text not null,
  relay       bigint not null,
  attempt     integer not null check (attempt > 0),
  fraction    double precision not null check (fraction >= 0 and fraction <= 1),
  note        text,
  since       timestamptz not null default now(),
  reported_at timestamptz not null default now(),
  primary key (seq, handler)
) with (fillfactor = 50);
comment on column :"schema".outbox_progress.since is 'When the first report of this attempt was written.';

-- Events that were cancelled while a relay had claimed them, until that relay has stopped delivering them or has ended. The
-- event is a dead letter already. Its queue row, claimed by relay 0 and blocking, keeps later events of its key from
-- starting beside its handler.
create table :"schema".outbox_cancellations (
  seq          bigint primary key,
  relay        bigint not null,
  reason       text not null,
  cancelled_at timestamptz not null default now()
);

-- How often events were requeued, and how often a table was truncated: see note_requeues().
create sequence :"schema".outbox_requeues;
-- last_value is 1 both before and after the first nextval(): without this the first requeue would not be noticed.
do $postcommit$ begin perform nextval(:'schema.outbox_requeues'::regclass); end $postcommit$;

-- One relay at a time owns a named duty. The epoch fences: it grows with every change of owner.
create table :"schema".outbox_leadership (
  name        text primary key,
  epoch       bigint not null default 1 check (epoch > 0),
  owner       bigint not null,
  acquired_at timestamptz not null default now(),
  lease_until timestamptz not null
);

-- Maintenance ------------------------------------------------------------------------------------------------------------

-- One row per task. Only the leader writes here, fenced by its epoch: a leader that was deposed while it worked cannot
-- overwrite the results of its successor.
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
  cycle_at     timestamptz,
  keep_ms      double precision check (keep_ms >= 0)
);
comment on column :"schema".outbox_maintenance.changed is 'Rows that the last run removed, or other changes it made.';
comment on column :"schema".outbox_maintenance.note is 'What the last run left undone, and why.';
comment on column :"schema".outbox_maintenance.error is 'Why the last run failed; NULL if it succeeded.';
comment on column :"schema".outbox_maintenance.failures is 'Consecutive failed runs.';
comment on column :"schema".outbox_maintenance.cursor_seq is
  'How far the log has been searched in this cycle. The next cycle examines skipped events again.';
comment on column :"schema".outbox_maintenance.cycle_at is 'When this cycle began.';
comment on column :"schema".outbox_maintenance.keep_ms is
  'The age, in milliseconds, at which the last run removes rows; NULL for tasks that have none.';

-- Schedules --------------------------------------------------------------------------------------------------------------

-- One row per schedule that a relay was ever started with. emit_tick() moves ticked_to, in the transaction that emits.
create table :"schema".outbox_schedules (
  name               text primary key,
  id                 uuid not null default gen_random_uuid(),
  cron               text not null,
  time_zone          text not null,
  ticked_to          timestamptz not null default date_trunc('milliseconds', clock_timestamp()),
  last_tick_at       timestamptz,
  next_tick_at       timestamptz,
  paused_at          timestamptz,
  reason             text,
  emitted            bigint not null default 0 check (emitted >= 0),
  triggers_requested bigint not null default 0,
  triggers_emitted   bigint not null default 0,
  failures           integer not null default 0 check (failures >= 0),
  error              text,
  declared_by        text not null,
  declared_at        timestamptz not null default now(),
  declarations       jsonb not null default '{}' check (jsonb_typeof(declarations) = 'object'),
  changed_at         timestamptz not null default now(),
  constraint outbox_schedules_triggers_check check (triggers_emitted >= 0 and triggers_emitted <= triggers_requested)
);
comment on column :"schema".outbox_schedules.id is 'Event ids derive from it and the tick, so that no two outboxes derive the same.';
comment on column :"schema".outbox_schedules.ticked_to is 'Every tick up to this time was emitted or skipped. Whole milliseconds.';
comment on column :"schema".outbox_schedules.last_tick_at is 'The last tick that was emitted.';
comment on column :"schema".outbox_schedules.next_tick_at is 'As the leading relay computed it; NULL until it has.';
comment on column :"schema".outbox_schedules.reason is 'Why an operator paused it.';
comment on column :"schema".outbox_schedules.emitted is 'Ticks and triggers that were emitted.';
comment on column :"schema".outbox_schedules.failures is 'Consecutive failures to emit; error has the last one.';
comment on column :"schema".outbox_schedules.declared_by is 'Name of the relay that declared it last.';
comment on column :"schema".outbox_schedules.declarations is
  'What each relay declares, by token: {"relay", "cron", "timeZone"}. Rows of ended relays are ignored.';

-- Settings and partitions ------------------------------------------------------------------------------------------------

create table :"schema".outbox_settings (
  name       text primary key,
  value      text not null,
  changed_at timestamptz not null default now(),
  constraint outbox_settings_partitions_check check (name <> 'partitions' or value in ('day', 'month'))
);
comment on table :"schema".outbox_settings is
  'Settings of the whole outbox. partitions: day or month; without a row the log is not partitioned.';

-- Partitions: pieces of the log and the record that retention drops whole, instead of deleting row by row.
--
-- Partitioned by seq, not by time: a claim looks up events by seq alone, and would have to probe every partition of a log
-- partitioned by created_at. Each partition has room for 10^12 seqs: number n begins at n * 10^12. Rotation makes it a day or a
-- month: when the calendar unit is over, the sequence moves on to the first seq of the next partition. This costs writers
-- nothing. A clock that is set back or ahead only rotates late or early. If the next partition cannot be created, the sequence
-- is not moved and writers continue in the current one. A seq without a partition, because an operator detached it, goes into
-- the default partition.
--
-- Functions that change partitions take locks only briefly: every writer queues behind a session that waits for an ACCESS
-- EXCLUSIVE lock. They are SECURITY DEFINER, because only the owner of a table may attach to it or drop it; other roles need
-- EXECUTE.
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
  'Transactions that may not see it yet: it is opened after they have ended. NULL means that they were not determined yet.';
comment on column :"schema".outbox_partitions.opened_at is 'When events started to go into it; NULL means that it is a spare.';
comment on column :"schema".outbox_partitions.closed_at is 'When the next one was opened. Retention counts from here.';
comment on column :"schema".outbox_partitions.checked_to is
  'Every event of the partition below this seq is delivered, queued, shelved or a dead letter: see check_partition().';
comment on column :"schema".outbox_partitions.dropped_at is
  'When it was dropped. The row stays until the failures and discarded dead letters of its events are removed.';

-- Triggers ---------------------------------------------------------------------------------------------------------------

-- All of them also fire with session_replication_role = replica, which bulk loaders and replication tools set: an event without
-- a queue row is never delivered.

create trigger outbox_events_enqueue after insert on :"schema".outbox_events
  referencing new table as emitted for each statement execute function :"schema".enqueue();
-- Makes a transaction get its id before it draws a seq: the low-water mark waits for the transactions that may still insert a
-- lower seq, and knows them by their ids (src/relay/lane/low-water.ts). Without this trigger a row's seq is drawn first, and
-- computing its other values may take time. Evaluating the condition assigns the id; the condition is never true, so the
-- function is never called.
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

-- One row per event with the usual columns of an outbox. SENT requires a delivery record. The record of an event is searched in
-- the event's own partition only.
--
-- updated_at is the latest recorded change of the status. A claim records no time, because a wider row update would cost every
-- event; so PROCESSING shows the latest time known to be before the claim. The same applies to an event that was requeued from
-- the shelf or from the dead letters.
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
       end as updated_at,
       coalesce(e.queue, 'default') as queue
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
    -- By time first: a retried dead letter starts again at attempt 1.
    select x.error, x.failed_at from :"schema".outbox_failures x
     where x.seq = e.seq order by x.failed_at desc, x.attempt desc limit 1
  ) f on true;
