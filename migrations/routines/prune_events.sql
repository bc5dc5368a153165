-- Removes a chunk of old events from the log, with their failures, edits, dead letters and delivery records. Examines the lowest seqs
-- after `after`, at most `rows_max` of them. Removes an event only if it has a delivery record or is a discarded dead letter.
-- Keeps, at any age, an event in the queue or on the shelf, an unresolved dead letter, and an unqueued event (find_unqueued). In a
-- partitioned log it works on the default partition; the others are dropped whole.
--
-- Why no event that is still needed is removed: an event that is in none of queue, shelf and dead letters in one snapshot can
-- only return by `replay`, which takes the lock below (shared), or by the retry of a discarded dead letter, which locks that
-- row, as this function does. Both locks are taken before the deciding snapshot: every statement of this function has its own,
-- so the isolation level must be READ COMMITTED. One statement reads all three tables, because an event may move between them
-- at any moment.
--
-- Returns counts; `reached` is where the next chunk begins, `finished` means that nothing old is left after it. Time mostly
-- follows seq. After a chunk without old events the BRIN index is searched for the next old event, if there is one: imported
-- history comes after newer events, and a clock that was set back has the same effect. Where time follows seq, only the block
-- range at the cutoff matches.
--
-- enable_seqscan is off because up to PostgreSQL 16 the planner overestimates `seq = any (array)` by index: to delete 500
-- events it read a log of 20,000 from end to end, for each chunk. enable_bitmapscan is off because the BRIN index of times also
-- has seq, and looks cheaper without statistics.
--
-- requires: require_read_committed
create or replace function :"schema".prune_events(after bigint, keep_ms double precision, rows_max integer, dry_run boolean)
returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '2s'
set enable_seqscan = off set enable_bitmapscan = off set enable_indexscan = on set enable_indexonlyscan = on as $postcommit$
declare
  log regclass := coalesce(to_regclass(format('%I.outbox_events_default', :'schema')),
                           :'schema.outbox_events'::regclass);
  deliveries regclass := coalesce(to_regclass(format('%I.outbox_deliveries_default', :'schema')),
                                  :'schema.outbox_deliveries'::regclass);
  cutoff constant timestamptz := now() - keep_ms * interval '1 millisecond';
  seen integer;
  young bigint;
  last bigint;
  next_aged bigint;
  aged bigint[];
  reached bigint;
  discarded bigint[] := '{}';
  doomed bigint[];
  pruned integer;
  queued integer;
  shelved integer;
  dead integer;
  unqueued integer;
begin
  perform :"schema".require_read_committed('events can be pruned');
  execute format($q$
    select count(*), max(seq), min(young), coalesce(array_agg(seq order by seq) filter (where created_at < $2), '{}'),
           max(seq) filter (where created_at < $2 or created_at > now() and (young is null or seq < young))
      from (select seq, created_at, min(seq) filter (where created_at between $2 and now()) over () as young
              from (select seq, created_at from %s where seq > $1 order by seq limit $3) e) e $q$, log)
    into seen, last, young, aged, reached using after, cutoff, rows_max;

  if not dry_run then
    perform pg_advisory_xact_lock(hashtextextended('postcommit.prune.' || :'schema', 42));
    select coalesce(array_agg(d.seq), '{}') into discarded
      from (select seq from :"schema".outbox_dead_letters
             where seq = any (aged) and discarded_at is not null order by seq for update skip locked) d;
  end if;
  -- LATERAL ... LIMIT: with joins, the planner may read all of the queue, or of the log below, for each chunk. The record is
  -- read once per 10,000 seqs instead of once per event, which took 30 ms a chunk instead of 10.
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
    into doomed, queued, shelved, dead, unqueued
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
    delete from :"schema".outbox_edits x where x.seq = any (doomed);
    delete from :"schema".outbox_dead_letters d where d.seq = any (doomed);
    -- A delivery record is removed with the last of its events, usually its highest seq: that one is looked up first, otherwise
    -- each chunk would search all of a long record. Then range by range of the multirange: a scattered one would have to be
    -- compared with everything in between.
    execute format($q$
      delete from %1$s d where d.seqs && $1
         and coalesce((select false from %2$I.outbox_events e where e.seq = upper(d.seqs) - 1 limit 1), true)
         and coalesce((select false from unnest(d.seqs) r cross join lateral (
               select from %2$I.outbox_events e where e.seq >= lower(r) and e.seq < upper(r) order by e.seq limit 1) e
             limit 1), true) $q$, deliveries, :'schema')
      using int8range(doomed[1], doomed[cardinality(doomed)], '[]');
  end if;
  if seen = rows_max and cardinality(aged) = 0 and young is not null then
    -- As in find_seq_range: the planner would read the rest of the log along the primary key.
    perform set_config('enable_bitmapscan', 'on', true), set_config('enable_indexscan', 'off', true),
            set_config('enable_indexonlyscan', 'off', true);
    execute format('select min(seq) from %s where created_at < $1 and seq > $2', log) into next_aged using cutoff, last;
    reached := coalesce(next_aged - 1, reached);
  end if;
  return jsonb_build_object(
    'pruned', pruned, 'reached', coalesce(reached, after)::text,
    'finished', seen < rows_max or (cardinality(aged) = 0 and young is not null and next_aged is null),
    'queued', queued, 'shelved', shelved, 'dead', dead, 'unqueued', unqueued);
end
$postcommit$;
revoke execute on function :"schema".prune_events(bigint, double precision, integer, boolean) from public;
