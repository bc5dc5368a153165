-- The outbox: a log that is written once, and a narrow queue of the work left.
--
-- :"schema" is replaced by the quoted schema name, :'schema' by the same as a literal. `npx postcommit sql` prints the
-- result. Function bodies are quoted by a tag that no schema name is likely to contain.

-- The log. Append-only: PostgreSQL copies a row on every UPDATE, so everything that changes lives in outbox_queue.
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
           and (headers = '{}' or octet_length(headers::text) <= 65536))
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

-- The work left: one narrow row per undelivered event. A claim changes `claimed_by`, which no index covers, so it is a
-- HOT update (only taking over an event of a relay that ended changes `rescues` too); fillfactor 50 leaves each page the room for it.
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
  replay_id    bigint
) with (
  fillfactor = 50,
  -- The queue turns over completely all the time: vacuum by a fixed number of dead rows, and without pausing.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
comment on column :"schema".outbox_queue.key is 'Hash of what the event is ordered by; NULL means no order.';
comment on column :"schema".outbox_queue.claimed_by is 'Fencing token of the relay that holds the event; NULL means free.';
comment on column :"schema".outbox_queue.available_at is
  'NULL means ready. A time means delayed, in backoff, or deferred behind its key; infinity means behind a blocking dead letter.';
comment on column :"schema".outbox_queue.blocking is 'A dead letter that holds its key back until somebody resolves it.';
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
-- Events that were in the hands of a relay that ended, twice or more: see claim_many. Almost always empty.
create index outbox_queue_suspect_idx on :"schema".outbox_queue (rescues, seq) where rescues > 1;
create index outbox_queue_key_idx on :"schema".outbox_queue (key, seq) where key is not null;
-- Few rows owe anything: for `forget`, and for finding events whose handler no relay has.
create index outbox_queue_owed_idx on :"schema".outbox_queue (seq) where owed is not null;

-- The record: one row per settled batch and outcome, not per event. A drain settles mostly contiguous seqs, so a
-- multirange of five hundred of them is some thirty bytes.
create table :"schema".outbox_deliveries (
  delivered_at timestamptz not null default now(),
  relay        bigint not null,
  attempts     integer not null,
  targets      text[] not null,
  seqs         int8multirange not null
);
create index outbox_deliveries_seqs_idx on :"schema".outbox_deliveries using gist (seqs);
create index outbox_deliveries_delivered_at_idx on :"schema".outbox_deliveries using brin (delivered_at);

-- Every failed attempt, for as long as the event is kept.
create table :"schema".outbox_failures (
  seq       bigint not null,
  attempt   integer not null,
  failed_at timestamptz not null default now(),
  relay     bigint not null,
  target    text,
  code      text,
  error     text not null
);
create index outbox_failures_seq_idx on :"schema".outbox_failures (seq, attempt);

-- What failed for good. Kept out of the queue so that a thousand dead letters never slow a claim.
create table :"schema".outbox_dead_letters (
  seq      bigint primary key,
  dead_at  timestamptz not null default now(),
  reason   text not null check (reason in ('exhausted', 'rejected', 'no_handler', 'crashed', 'forgotten', 'cancelled')),
  attempts integer not null,
  done     text[],
  owed     text[],
  replay_id bigint,
  key      bigint,
  blocking boolean not null default false,
  error    text not null,
  discarded_at timestamptz
);
comment on column :"schema".outbox_dead_letters.discarded_at is
  'When an operator gave the event up. The row stays, so that its story can be told.';
create index outbox_dead_letters_dead_at_idx on :"schema".outbox_dead_letters (dead_at, seq);

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

-- The inbox of consumers.
create table :"schema".processed_events (
  consumer_name text not null,
  event_id      uuid not null,
  processed_at  timestamptz not null default now(),
  primary key (consumer_name, event_id)
);

-- One owner at a time for a named duty. The epoch fences: it grows with every change of owner.
create table :"schema".outbox_leadership (
  name        text primary key,
  epoch       bigint not null default 1,
  owner       bigint not null,
  acquired_at timestamptz not null default now(),
  lease_until timestamptz not null
);

-- What operators set and every relay obeys.
create table :"schema".outbox_destinations (
  destination text primary key,
  paused_at   timestamptz,
  reason      text,
  changed_at  timestamptz not null default now()
);

-- The hash that stands for an ordering key. NULL for no order.
create function :"schema".key_hash(aggregate_type text, aggregate_id text, ordering_key text) returns bigint
language sql immutable parallel safe
return case
  when ordering_key is null then hashtextextended(aggregate_id, hashtextextended(aggregate_type, 0))
  when ordering_key = '' then null
  else hashtextextended(ordering_key, 1)
end;

-- Nobody can forget the queue: whatever inserts into the log fills it, from any language. SECURITY DEFINER, so that a
-- role that may only insert events is enough to emit.
create function :"schema".enqueue() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $postcommit$
begin
  insert into :"schema".outbox_queue (seq, key, available_at)
    select seq, :"schema".key_hash(aggregate_type, aggregate_id, ordering_key), available_at from emitted;
  return null;
end
$postcommit$;
create trigger outbox_events_enqueue after insert on :"schema".outbox_events
  referencing new table as emitted for each statement execute function :"schema".enqueue();
-- Also with session_replication_role = replica, which bulk loaders and replication tools set: an event without a queue row
-- is never delivered.
alter table :"schema".outbox_events enable always trigger outbox_events_enqueue;

-- Serialises the writers of one key until they commit, so that seq, drawn after the lock, follows commit order.
--
-- The keys of one call are locked in order, so that two transactions of one call each do not deadlock. Separate calls
-- lock in the order of the calls, and can deadlock as row locks can.
--
-- Thousands of keys would fill PostgreSQL's lock table (6,400 places by default, for all sessions together), so a first
-- call with more than 256 keys tries to close the gates instead: every emitter takes one of 16 gates (shared) before its
-- first key, and a transaction that has all of them (exclusive) shuts every other emitter out until it commits. An emitter
-- that waits at a gate holds no key of this outbox yet, and one that has its gate does not wait there again, so the two
-- kinds do not deadlock. Sixteen, because one lock that all commits touch would be hot.
--
-- PostgreSQL's lock queue is fair: behind a transaction that waits to close a gate, every later emitter waits too, whatever
-- its key. One idle transaction that has emitted would thus stop all others. So close_gates() has 100 ms for all gates, and
-- then lets go of them: that is the longest that a waiting bulk call keeps unrelated emitters waiting. If it fails,
-- up to 1,000 keys are locked one by one. More are tried again for 3 to 5 s, with pauses of 100 to 300 ms in which
-- others pass, and then the call fails with 55P03. At random, so that of two transactions that wait for each other's gate
-- one gives up first.
--
-- A transaction that holds keys already goes on key by key, and closes the gates when it has 1,000.
--
-- 1886352483 and the numbers after it are our own classes of advisory locks: one of 1,048,576 for the gates of each schema,
-- and as many after that for the ids of emit_once. `postcommit doctor` recognises them by that (src/outbox/examining/examine-locks.ts).
-- Any role that may connect can take them; emitters then wait for as long as their lock_timeout allows. The salt keeps outboxes
-- in other schemas apart; the setting remembers what this transaction holds, and forgets it with the locks at a rollback to a savepoint.
create function :"schema".close_gates() returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  gates constant integer := 1886352483 + (hashtextextended(:'schema', 0) & 1048575)::integer;
  deadline constant timestamptz := clock_timestamp() + interval '100 milliseconds';
  given constant text := current_setting('lock_timeout');
  given_ms constant integer := (select nullif(setting::integer, 0) from pg_catalog.pg_settings where name = 'lock_timeout');
  left_ms integer;
begin
  for gate in 0 .. 15 loop
    continue when pg_try_advisory_xact_lock(gates, gate);
    left_ms := ceil(extract(epoch from deadline - clock_timestamp()) * 1000);
    if left_ms <= 0 then
      raise lock_not_available;
    end if;
    perform set_config('lock_timeout', least(left_ms, given_ms)::text, true);
    perform pg_advisory_xact_lock(gates, gate);
  end loop;
  perform set_config('lock_timeout', given, true);
  return true;
-- With a deadlock_timeout below 100 ms PostgreSQL may find a deadlock before the time is up. Letting go of the gates resolves it.
exception when lock_not_available or deadlock_detected then
  -- The gates that were closed are open again, and lock_timeout is as it was.
  return false;
end
$postcommit$;

create function :"schema".lock_keys(keys bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  salt constant bigint := hashtextextended(:'schema', 0);
  gates constant integer := 1886352483 + (salt & 1048575)::integer;
  holding text := coalesce(nullif(current_setting('postcommit.locked_keys', true), ''), ',');
  held constant integer := length(holding) - length(replace(holding, ',', '')) - 1;
  fresh bigint[];
  k bigint;
  closed boolean := false;
  deadline timestamptz;
begin
  if cardinality(keys) = 1 then
    k := keys[1] # salt;
    if k is null or strpos(holding, ',' || k || ',') > 0 or strpos(holding, ',all' || gates || ',') > 0 then
      return;
    end if;
    if held < 1000 then
      perform pg_advisory_xact_lock_shared(gates, pg_backend_pid() & 15), pg_advisory_xact_lock(k);
      perform set_config('postcommit.locked_keys', holding || k || ',', true);
      return;
    end if;
  end if;

  select array_agg(distinct x # salt order by x # salt) into fresh
    from unnest(keys) x where x is not null and strpos(holding, ',' || (x # salt) || ',') = 0;
  if fresh is null or strpos(holding, ',all' || gates || ',') > 0 then
    return;
  end if;
  if (held = 0 and cardinality(fresh) > 256) or held + cardinality(fresh) > 1000 then
    closed := :"schema".close_gates();
    if not closed and held + cardinality(fresh) > 1000 then
      deadline := clock_timestamp() + (3 + 2 * random()) * interval '1 second';
      while not closed and clock_timestamp() < deadline loop
        perform pg_sleep(0.1 + 0.2 * random());
        closed := :"schema".close_gates();
      end loop;
      if not closed then
        raise exception 'cannot emit for more than 1000 keys while other transactions that have emitted are open' using
          errcode = 'lock_not_available',
          hint = 'Emit for at most 1000 aggregates in a transaction, or try again when the others have ended.';
      end if;
    end if;
    if closed then
      perform set_config('postcommit.locked_keys', holding || 'all' || gates || ',', true);
      return;
    end if;
  end if;
  perform pg_advisory_xact_lock_shared(gates, pg_backend_pid() & 15);
  foreach k in array fresh loop
    perform pg_advisory_xact_lock(k);
  end loop;
  perform set_config('postcommit.locked_keys', holding || array_to_string(fresh, ',') || ',', true);
end
$postcommit$;

-- Emits an array of events in the caller's transaction: one round trip, whatever their number. Every key's lock is
-- taken before any seq is drawn. A function rather than a statement of the client's, because PL/pgSQL keeps the plans
-- per session without named prepared statements, which transaction poolers do not carry.
--
-- A client that cannot be sure that its transaction is still open marks it first (a local setting, gone with the
-- transaction) and hands the mark in: outside of it the events would be committed by themselves.
create function :"schema".emit(events jsonb, serialise boolean default true, mark text default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  if mark is not null and mark is distinct from current_setting('postcommit.mark', true) then
    raise exception 'the transaction that was to emit has ended' using errcode = 'no_active_sql_transaction';
  end if;
  if serialise then
    perform :"schema".lock_keys(array(
      select :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key)
        from jsonb_to_recordset(events) as e(aggregate_type text, aggregate_id text, ordering_key text)));
  end if;
  insert into :"schema".outbox_events
    (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at)
    select coalesce(e.id, gen_random_uuid()), e.aggregate_type, e.aggregate_id, e.event_type,
           coalesce(e.schema_version, 1), e.ordering_key, coalesce(e.payload, 'null'), coalesce(e.headers, '{}'),
           case when e.delay_ms is null then e.available_at
                else clock_timestamp() + e.delay_ms * interval '1 millisecond' end
      from jsonb_to_recordset(events) as e(
        id uuid, aggregate_type text, aggregate_id text, event_type text, schema_version integer,
        ordering_key text, payload jsonb, headers jsonb, available_at timestamptz, delay_ms double precision);
end
$postcommit$;

-- The same for one event, to be called from SQL: select postcommit.emit('order.created', 'order', '42', '{"total": 9}').
create function :"schema".emit(
  event_type text, aggregate_type text, aggregate_id text, payload jsonb,
  headers jsonb default '{}', id uuid default gen_random_uuid(), schema_version integer default 1,
  ordering_key text default null, available_at timestamptz default null
) returns uuid
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
#variable_conflict use_variable
begin
  perform :"schema".lock_keys(array[:"schema".key_hash(aggregate_type, aggregate_id, ordering_key)]);
  insert into :"schema".outbox_events as e
    (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at)
    values (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at);
  return id;
end
$postcommit$;

-- One row per event with the columns people expect of an outbox. SENT is proven by a delivery record, never assumed.
create view :"schema".outbox_status as
select e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.schema_version, e.payload, e.headers,
       case
         when d.seq is not null then 'FAILED'
         when q.seq is not null and r.token is not null then 'PROCESSING'
         when q.seq is not null then 'PENDING'
         when s.delivered_at is not null then 'SENT'
         else 'PENDING'
       end as status,
       coalesce(q.attempts, d.attempts, s.attempts - 1, 0) as retry_count,
       case when q.available_at < 'infinity' then q.available_at end as next_retry_at,
       e.created_at,
       s.delivered_at as published_at,
       f.error as last_error
  from :"schema".outbox_events e
  left join :"schema".outbox_queue q on q.seq = e.seq
  left join :"schema".outbox_relays r on r.token = q.claimed_by and r.ended_at is null
  left join :"schema".outbox_dead_letters d on d.seq = e.seq
  left join lateral (
    select x.delivered_at, x.attempts from :"schema".outbox_deliveries x
     where x.seqs @> e.seq order by x.delivered_at desc limit 1
  ) s on true
  left join lateral (
    -- By time first: a dead letter that is retried starts again at attempt 1.
    select x.error from :"schema".outbox_failures x
     where x.seq = e.seq order by x.failed_at desc, x.attempt desc limit 1
  ) f on true;
