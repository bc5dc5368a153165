-- Maintenance: what the leader among the relays did last, and retention that never takes what is still needed.

-- One row per task. Only the leader writes here, fenced by its epoch: a leader that was deposed while it worked cannot
-- write over what its successor did.
create table :"schema".outbox_maintenance (
  task         text primary key,
  epoch        bigint not null,
  ran_at       timestamptz not null default now(),
  duration_ms  integer not null,
  changed      bigint not null,
  note         text,
  error        text,
  failures     integer not null default 0,
  succeeded_at timestamptz,
  -- How far the log has been looked through, and since when: what was passed over is looked at again in the next cycle.
  cursor_seq   bigint not null default 0,
  cycle_at     timestamptz
);
comment on column :"schema".outbox_maintenance.changed is 'Rows that the last run removed, or other things it did.';
comment on column :"schema".outbox_maintenance.note is 'What the last run left undone, and why.';
comment on column :"schema".outbox_maintenance.error is 'Why the last run failed; NULL when it did not.';
comment on column :"schema".outbox_maintenance.failures is 'Runs that failed in a row.';

-- Not BRIN: where pruning frees pages that new rows then fill, a block range keeps its oldest time, and every run would
-- read it again.
create index processed_events_processed_at_idx on :"schema".processed_events (processed_at);

-- Every claim and every heartbeat asks who is alive, among all that ever were. A heartbeat changes nothing that this
-- index covers, so it stays a HOT update.
create index outbox_relays_alive_idx on :"schema".outbox_relays (token) where ended_at is null;

-- Removes a chunk of old events from the log, with all that is told of them: the lowest seqs after `after`, no more than
-- `rows_max` of them looked at. Only what has a delivery record or is a discarded dead letter goes. Stays, whatever its
-- age: what is in the queue, on the shelf, a dead letter that nobody discarded, or an orphan (find_orphans). Where the log is partitioned, this is about its default partition; the others are dropped whole.
--
-- Why nothing that is still needed can go. An event that is in none of queue, shelf and dead letters in one snapshot can
-- only come back by `replay`, which takes the lock below (shared), or by the retry of a dead letter that was discarded,
-- which locks that row, as is done here. Both are taken before the snapshot that decides: every statement of this
-- function has its own, so the isolation must be READ COMMITTED. The three are looked at in one statement, because an
-- event may move from one to the other at any moment.
--
-- The answer: `reached` is where the next chunk begins, `finished` says that nothing old is left behind it. Time goes
-- along with seq but for a clock that was set: events of the future (it was ahead) are passed over, and the first chunk
-- without anything old ends the search.
--
-- enable_seqscan is off because up to PostgreSQL 16 the planner overestimates `seq = any (array)` by index: to delete 500
-- events it read a log of 20,000 from end to end, for each chunk. enable_bitmapscan is off because the BRIN index of times
-- has seq as well, and without statistics looks like the cheaper way.
create function :"schema".prune_events(after bigint, keep_ms double precision, rows_max integer, dry_run boolean)
returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '2s'
set enable_seqscan = off set enable_bitmapscan = off as $postcommit$
declare
  log regclass := coalesce(to_regclass(format('%I.outbox_events_default', :'schema')),
                           format('%I.outbox_events', :'schema')::regclass);
  deliveries regclass := coalesce(to_regclass(format('%I.outbox_deliveries_default', :'schema')),
                                  format('%I.outbox_deliveries', :'schema')::regclass);
  cutoff constant timestamptz := now() - keep_ms * interval '1 millisecond';
  seen integer;
  young bigint;
  aged bigint[];
  reached bigint;
  discarded bigint[] := '{}';
  doomed bigint[];
  pruned integer;
  queued integer;
  shelved integer;
  dead integer;
  orphaned integer;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'events can only be pruned under READ COMMITTED' using
      errcode = 'invalid_transaction_state',
      hint = 'Set default_transaction_isolation to ''read committed'' for this role.';
  end if;
  execute format($q$
    select count(*), min(young), coalesce(array_agg(seq order by seq) filter (where created_at < $2), '{}'),
           max(seq) filter (where created_at < $2 or created_at > now() and (young is null or seq < young))
      from (select seq, created_at, min(seq) filter (where created_at between $2 and now()) over () as young
              from (select seq, created_at from %s where seq > $1 order by seq limit $3) e) e $q$, log)
    into seen, young, aged, reached using after, cutoff, rows_max;

  if not dry_run then
    perform pg_advisory_xact_lock(hashtextextended('postcommit.prune.' || :'schema', 42));
    select coalesce(array_agg(d.seq), '{}') into discarded
      from (select seq from :"schema".outbox_dead_letters
             where seq = any (aged) and discarded_at is not null order by seq for update skip locked) d;
  end if;
  -- Each by LATERAL ... LIMIT: as joins, the planner may read all of the queue, or of the log below, for each chunk. The
  -- record is read once per 10,000 seqs and not once per event, which took 30 ms a chunk instead of 10.
  with judged as materialized (
    select o.seq, q.seq is not null as queued, h.seq is not null as shelved, d.seq is not null as letter,
           d.seq is not null and (d.discarded_at is null or not (dry_run or d.seq = any (discarded))) as dead
      from unnest(aged) as o(seq)
      left join lateral (select x.seq from :"schema".outbox_queue x where x.seq = o.seq limit 1) q on true
      left join lateral (select x.seq from :"schema".outbox_shelf x where x.seq = o.seq limit 1) h on true
      left join lateral (
        select x.seq, x.discarded_at from :"schema".outbox_dead_letters x where x.seq = o.seq limit 1
      ) d on true
  ), recorded as materialized (
    select coalesce(range_agg(r), '{}') as seqs from (
      select min(j.seq) as first, max(j.seq) as last from judged j
       where not (j.queued or j.shelved or j.letter) group by j.seq / 10000
    ) part
     cross join lateral (
       select x.seqs from :"schema".outbox_deliveries x
        where x.seqs && int8range(part.first, part.last, '[]')
          and lower(x.seqs) >= part.first / 1000000000000 * 1000000000000 and lower(x.seqs) <= part.last
     ) x
     cross join lateral unnest(x.seqs) r where r && int8range(part.first, part.last, '[]')
  )
  select coalesce(array_agg(j.seq order by j.seq) filter (where j.goes), '{}'),
         count(*) filter (where j.queued and not j.dead), count(*) filter (where j.shelved and not j.queued),
         count(*) filter (where j.dead),
         count(*) filter (where not (j.goes or j.queued or j.shelved or j.dead))
    into doomed, queued, shelved, dead, orphaned
    from (
      select x.*, not (x.queued or x.shelved or x.dead)
                  and (x.letter or x.seq <@ (select r.seqs from recorded r)) as goes
        from judged x
    ) j;

  pruned := cardinality(doomed);
  if not dry_run and pruned > 0 then
    execute format('delete from %s where seq = any ($1)', log) using doomed;
    get diagnostics pruned = row_count;
    delete from :"schema".outbox_failures f where f.seq = any (doomed);
    delete from :"schema".outbox_dead_letters d where d.seq = any (doomed);
    -- A record of a batch goes with the last of its events, which as a rule is its highest: that one is looked for first,
    -- or each chunk would look through all of a record that reaches far. Then by range of the multirange: one that is
    -- scattered would have to be compared with everything that lies between.
    execute format($q$
      delete from %1$s d where d.seqs && $1
         and coalesce((select false from %2$I.outbox_events e where e.seq = upper(d.seqs) - 1 limit 1), true)
         and coalesce((select false from unnest(d.seqs) r cross join lateral (
               select from %2$I.outbox_events e where e.seq >= lower(r) and e.seq < upper(r) order by e.seq limit 1) e
             limit 1), true) $q$, deliveries, :'schema')
      using int8range(doomed[1], doomed[cardinality(doomed)], '[]');
  end if;
  return jsonb_build_object(
    'pruned', pruned, 'reached', coalesce(reached, after)::text,
    'finished', seen < rows_max or (cardinality(aged) = 0 and young is not null),
    'queued', queued, 'shelved', shelved, 'dead', dead, 'orphaned', orphaned);
end
$postcommit$;

-- With its owner's rights: a relay that may delete from the log, and from a default partition that was made after its
-- grants, could delete anything; like this it can only prune. So it is not for everybody to call.
revoke execute on function :"schema".prune_events(bigint, double precision, integer, boolean) from public;

-- Puts the orphans from `first` up to, but without, `beyond` into the queue, lowest seq first. Returns their number. Events of
-- their keys that were emitted later may have been delivered already; these come after them.
create function :"schema".requeue_orphans(first bigint, beyond bigint, orphans_max integer) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
declare
  requeued integer;
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('postcommit.prune.' || :'schema', 42));
  with back as (
    insert into :"schema".outbox_queue (seq, key, available_at)
      select e.seq, :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key), e.available_at
        from :"schema".outbox_events e
       where e.seq = any (array(select :"schema".find_orphans(first, beyond, orphans_max))) order by e.seq
      on conflict (seq) do nothing
      returning seq
  )
  select count(*) into requeued from back;
  perform :"schema".note_requeues();
  return requeued;
end
$postcommit$;

-- Puts delivered events back into the queue. They may be older than the time events are kept, and pruned at this very
-- moment: so under the lock that prune_events takes, with a look at the log that comes after it.
--
-- A replay is a deliberate second send, so it gets an id of its own, which the relay makes part of what brokers
-- deduplicate by. The time is enough: an event can only be replayed again after this replay was delivered.
create function :"schema".replay(seqs bigint[]) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
declare
  replayed integer;
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('postcommit.prune.' || :'schema', 42));
  with back as (
    insert into :"schema".outbox_queue (seq, key, replay_id)
      select e.seq, :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key),
             (extract(epoch from now()) * 1000000)::bigint
        from :"schema".outbox_events e where e.seq = any (seqs) order by e.seq
      -- Another operator may replay the same event: then one of the two inserts does nothing.
      on conflict (seq) do nothing
      returning seq
  )
  select count(*) into replayed from back;
  perform :"schema".note_requeues();
  return replayed;
end
$postcommit$;

-- The seq that the next event gets, and the lowest seq that no event has had: `next_seq` is at least `needed_seq` unless the
-- rows were copied to this server and the sequence was not, which is what logical replication does. The other sequence of this
-- schema, outbox_requeues, may lag: relays compare it with what they read on the same server (server_stamp).
--
-- Rows are read before the sequence, so that an event that is emitted meanwhile does not look like a lag. By index, also in
-- the delivery records: only those that reach beyond the sequence are read. With its owner's rights: a relay may not read the
-- log's sequence.
create function :"schema".sequence_state(out next_seq bigint, out needed_seq bigint)
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

-- Moves the log's sequence up to where it must be. Returns the seq that the next event gets if it was moved, else NULL. Only the
-- owner can. Writers wait while it looks: a seq that is drawn in between could make setval() move the sequence back.
create function :"schema".repair_sequence() returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '2s' as $postcommit$
declare
  state record;
begin
  perform :"schema".require_read_committed();
  perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
  lock table :"schema".outbox_events in share row exclusive mode;
  select * into state from :"schema".sequence_state();
  if state.next_seq >= state.needed_seq then
    return null;
  end if;
  -- Not called: a partition that was opened and has no events yet, as rotation leaves it.
  if state.needed_seq % 1000000000000 = 0 then
    perform setval(format('%I.outbox_events_seq_seq', :'schema')::regclass, state.needed_seq, false);
  else
    perform setval(format('%I.outbox_events_seq_seq', :'schema')::regclass, state.needed_seq - 1, true);
  end if;
  return state.needed_seq;
end
$postcommit$;

revoke execute on function :"schema".sequence_state(), :"schema".repair_sequence() from public;

-- The lowest seq that a time range has and the first one past its highest, so that a statement can walk the range along the
-- primary key. NULL for a time means no limit on that side; then the bound is NULL too.
--
-- The guesses are where the range would begin and end if created_at grew with seq. Imported history and a clock that was
-- set back break that, so this looks for events of the range outside of the guesses. The BRIN index has the extremes of both
-- columns for each block range: where created_at does follow seq, only the block ranges at the guesses match. The planner
-- takes the two conditions for independent, expects a quarter of the log, and would read that along the primary key
-- (8 s in the middle of 10 million events, instead of 30 ms); hence the settings.
--
-- Not as fast are block ranges that vacuum has not summarised yet, and those in which pruning has let new rows take the
-- place of old ones: they are read. Partitions are dropped whole and never have the latter.
create function :"schema".bound_seqs(
  created_from timestamptz, created_before timestamptz, guess_from bigint, guess_before bigint
) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off as $postcommit$
declare
  since constant timestamptz := coalesce(created_from, '-infinity');
  until constant timestamptz := coalesce(created_before, 'infinity');
  lowest bigint;
  highest bigint;
begin
  if created_from is not null then
    select min(e.seq) into lowest from :"schema".outbox_events e
     where e.created_at >= since and e.created_at < until and e.seq < guess_from;
  end if;
  if created_before is not null then
    select max(e.seq) into highest from :"schema".outbox_events e
     where e.created_at >= since and e.created_at < until and e.seq >= guess_before;
  end if;
  return jsonb_build_object(
    'from', case when created_from is not null then coalesce(lowest, guess_from)::text end,
    'before', case when created_before is not null then coalesce(highest + 1, guess_before)::text end);
end
$postcommit$;
