-- Relays that work off one backlog together. Each of them walks through all of it, and of a key whose events another one
-- holds nothing can be claimed: two relays spent most of their time looking at, and locking, what was the other's (31,000 to
-- 34,000 events/s together on two cores, where one alone had 54,000). So a claim may keep to the relay's own share: the keys
-- are divided among the living relays by their hash (47,500 to 55,000 together).
--
-- Shares decide who looks first, never who may deliver: what claim() in 0004_relay.sql says of order, fencing and rescue is
-- what keeps events safe, and holds here word for word. Relays may disagree for a moment about who lives. Four times a
-- second, and on one walk a second, everybody claims without regard to shares: what is free never waits for a relay that is
-- stuck or has just died.
--
-- claim() stays for relays of an earlier version, which know no shares, and is this one from now on: order is judged in one place.
create function :"schema".claim_many(
  relay bigint, above bigint, ready_max integer, due_max integer, except_keys bigint[], inline_bytes_max integer,
  holding bigint[], low bigint, low_returns bigint, survey boolean, own_share boolean
) returns table (
  seq bigint, id uuid, aggregate_type text, aggregate_id text, event_type text, schema_version integer,
  ordering_key text, payload text, headers text, created_us bigint
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
set work_mem = '32MB'
as $postcommit$
#variable_conflict use_column
declare
  taken_seqs bigint[];
  scan text;
  seen integer;
  plain boolean;
  only_seq bigint;
  only_key bigint;
  begun json;
  shares bigint := 1;
  share bigint := 0;
begin
  perform set_config('synchronous_commit', 'off', true);

  if own_share then
    select count(*), count(*) filter (where r.token < relay) into shares, share
      from :"schema".outbox_relays r where r.ended_at is null;
  end if;

  select count(*), bool_and(c.plain), min(c.seq), min(c.key) into seen, plain, only_seq, only_key from (
    (select q.seq, q.key, q.lease is null as plain from :"schema".outbox_queue q
      where q.available_at is null and q.seq > above
        and q.seq >= (select case when last_value = low_returns then low else 0 end from :"schema".outbox_returns)
        and (q.lease is null or q.lease not in (select token from :"schema".outbox_relays where ended_at is null)
             or (q.lease = relay and q.seq <> all (holding)))
        and (q.key is null or q.key <> all (except_keys))
        and (shares < 2 or (coalesce(q.key, q.seq) & 2147483647) % shares = share)
      order by q.seq limit least(ready_max, 2))
    union all
    (select q.seq, q.key, false from :"schema".outbox_queue q where q.available_at <= now()
      order by q.available_at limit least(due_max, 1))
  ) c;
  if seen = 1 and plain then
    -- What stands before it, and whether anything is on the shelf, is seen in the snapshot of this one statement.
    with one as materialized (
      select q.seq from :"schema".outbox_queue q
       where q.seq = only_seq and q.lease is null and q.available_at is null for update skip locked
    )
    update :"schema".outbox_queue q set lease = relay
     where q.seq = (select seq from one) and q.lease is null
       and not exists (select from :"schema".outbox_shelf)
       and coalesce((select p.lease is not distinct from relay and coalesce(p.seq = any (holding), true)
                       from :"schema".outbox_queue p
                      where p.key = only_key and p.seq < only_seq
                        and p.seq >= (select case when last_value = low_returns then low else 0 end
                                        from :"schema".outbox_returns)
                      order by p.seq desc limit 1), true)
    returning array[q.seq],
              case when q.attempts > 0 or q.done is not null then json_build_object(
                q.seq, json_build_object('attempts', q.attempts, 'done', q.done)) end
      into taken_seqs, begun;
  end if;

  if seen = 0 or taken_seqs is not null then
    scan := json_build_object(
      'seqs', only_seq::text, 'keys', coalesce(only_key::text, ''), 'begun', begun,
      'examined', seen, 'reached', only_seq::text, 'dueExamined', 0,
      'dueInMs', (select date_part('epoch', q.available_at - now()) * 1000 from :"schema".outbox_queue q
                   where q.available_at > now() and q.available_at < 'infinity' order by q.available_at limit 1),
      'survey', :"schema".survey_queue(low, low_returns, survey));
  else
    with alive as materialized (
      select token from :"schema".outbox_relays where ended_at is null
    ), ground as materialized (
      select case when (select last_value from :"schema".outbox_returns) = low_returns then low else 0 end as seq
    ), ready as materialized (
      select q.seq, q.key, q.lease from :"schema".outbox_queue q
       where q.available_at is null and q.seq > above and q.seq >= (select seq from ground)
         and (q.lease is null or q.lease not in (select token from alive)
              or (q.lease = relay and q.seq <> all (holding)))
         and (q.key is null or q.key <> all (except_keys))
         and (shares < 2 or (coalesce(q.key, q.seq) & 2147483647) % shares = share)
       order by q.seq limit ready_max for update skip locked
    ), due as materialized (
      select q.seq, q.key, q.lease from :"schema".outbox_queue q
       where q.available_at <= now()
         and (q.lease is null or q.lease not in (select token from alive)
              or (q.lease = relay and q.seq <> all (holding)))
         and (q.key is null or q.key <> all (except_keys))
       order by q.available_at, q.seq limit due_max for update skip locked
    ), candidate as materialized (
      select c.* from (select *, false as due from ready union all select *, true from due) c
       where c.lease is null or c.lease = (select q.lease from :"schema".outbox_queue q where q.seq = c.seq)
    ), judged as materialized (
      select c.seq, c.key, c.lease, c.due, p.seq as pred, p.lease as pred_lease, p.available_at as pred_available_at
        from candidate c left join lateral (
          select q.seq, q.lease, q.available_at from :"schema".outbox_queue q
           where q.key = c.key and q.seq < c.seq and q.seq >= (select seq from ground) order by q.seq desc limit 1
        ) p on true
    ), wall as materialized (
      select key, min(seq) as seq, coalesce(bool_or(pred_lease is null and pred_available_at > now()), false) as pred_waits
        from judged
       where pred is not null and pred not in (select seq from candidate)
         and (pred_lease is distinct from relay or pred <> all (holding))
       group by key
    ), taken as materialized (
      select array_agg(j.seq order by j.seq) as seqs, array_agg(j.key order by j.seq) as keys,
             array_agg(j.seq::text) filter (where j.lease <> relay) as rescued
        from judged j where not exists (select from wall w where w.key = j.key and w.seq <= j.seq)
    ), claimed as (
      update :"schema".outbox_queue q
         set lease = relay, rescues = q.rescues + coalesce(q.lease <> relay, false)::integer
       where q.seq = any ((select seqs from taken)::bigint[])
      returning q.seq, q.key, q.attempts, q.done
    ), passed as (
      update :"schema".outbox_queue q set lease = null, available_at = null
       where q.seq = any (array(select j.seq from judged j join wall w on w.key = j.key
         where j.seq >= w.seq and (j.lease is not null or (j.due and not w.pred_waits))))
    ), shelved as (
      select json_object_agg(c.seq, s.destinations) as destinations
        from claimed c cross join lateral (
          select array_agg(d.destination) as destinations from :"schema".outbox_controls d
           where exists (select from :"schema".outbox_shelf h
                          where h.key = c.key and h.destination = d.destination and h.seq < c.seq)
        ) s
       where (select exists (select from :"schema".outbox_shelf)) and s.destinations is not null
    )
    select t.seqs, json_build_object(
             'seqs', array_to_string(t.seqs, ','),
             'keys', array_to_string(t.keys, ',', ''),
             'rescued', t.rescued,
             'begun', (select json_object_agg(c.seq, json_build_object('attempts', c.attempts, 'done', c.done))
                         from claimed c where c.attempts > 0 or c.done is not null),
             'shelved', (select destinations from shelved),
             'examined', r.examined,
             'reached', r.reached::text,
             'dueExamined', (select count(*) from due),
             'blocked', (select array_agg(j.seq::text) from judged j join wall w on w.key = j.key
                          where w.pred_waits and j.seq >= w.seq),
             'dueInMs', (select date_part('epoch', q.available_at - now()) * 1000 from :"schema".outbox_queue q
                          where q.available_at > now() and q.available_at < 'infinity'
                          order by q.available_at limit 1),
             'survey', :"schema".survey_queue(low, low_returns, survey))
      into taken_seqs, scan
      from taken t, (select count(*) as examined, max(seq) as reached from ready) r;
  end if;

  seq := null;
  payload := scan;
  return next;
  if taken_seqs is null then
    return;
  end if;
  return query
    select l.seq, l.id, l.aggregate_type, l.aggregate_id, l.event_type, nullif(l.schema_version, 1), l.ordering_key,
           case when octet_length(t.payload) <= inline_bytes_max then t.payload end,
           nullif(l.headers::text, '{}'), (date_part('epoch', l.created_at) * 1000000)::bigint
      from :"schema".outbox_events l
      left join lateral (select l.payload::text as payload offset 0) t on pg_column_size(l.payload) <= inline_bytes_max
     where l.seq = any (taken_seqs) and l.seq >= taken_seqs[1] and l.seq <= taken_seqs[cardinality(taken_seqs)]
     order by l.seq;
end
$postcommit$;

create or replace function :"schema".claim(
  relay bigint, above bigint, ready_max integer, due_max integer, except_keys bigint[], inline_bytes_max integer,
  holding bigint[], low bigint, low_returns bigint, survey boolean
) returns table (
  seq bigint, id uuid, aggregate_type text, aggregate_id text, event_type text, schema_version integer,
  ordering_key text, payload text, headers text, created_us bigint
)
language sql as $postcommit$
  select * from :"schema".claim_many(
    relay, above, ready_max, due_max, except_keys, inline_bytes_max, holding, low, low_returns, survey, false);
$postcommit$;
