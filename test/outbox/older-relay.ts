// What a relay sends whose package knew neither partitions nor the functions of migration 0004: it goes on beside new ones
// until it is replaced.

const s = 'postcommit';

/** $1 token, $2 floor, $3 ready, $4 due, $5 keys to leave alone, $6 inline bytes, $7 seqs that it holds. */
export const olderClaimSql = `
with alive as materialized (
  select token from ${s}.outbox_relays where ended_at is null
), ready as materialized (
  select q.seq, q.key, q.claimed_by from ${s}.outbox_queue q
   where q.available_at is null and q.seq > $2::bigint
     and (q.claimed_by is null or q.claimed_by not in (select token from alive)
          or (q.claimed_by = $1::bigint and q.seq <> all ($7::bigint[])))
     and (q.key is null or q.key <> all ($5::bigint[]))
   order by q.seq limit $3::integer for update skip locked
), due as materialized (
  select q.seq, q.key, q.claimed_by from ${s}.outbox_queue q
   where q.available_at <= now()
     and (q.claimed_by is null or q.claimed_by not in (select token from alive)
          or (q.claimed_by = $1::bigint and q.seq <> all ($7::bigint[])))
     and (q.key is null or q.key <> all ($5::bigint[]))
   order by q.available_at, q.seq limit $4::integer for update skip locked
), candidate as materialized (
  select c.* from (select *, false as due from ready union all select *, true from due) c
   where c.claimed_by is null or c.claimed_by = (select q.claimed_by from ${s}.outbox_queue q where q.seq = c.seq)
), judged as materialized (
  select c.seq, c.key, c.claimed_by, c.due, p.seq as pred, p.claimed_by as pred_claimed_by, p.available_at as pred_available_at
    from candidate c left join lateral (
      select q.seq, q.claimed_by, q.available_at from ${s}.outbox_queue q
       where q.key = c.key and q.seq < c.seq order by q.seq desc limit 1
    ) p on true
), wall as materialized (
  select key, min(seq) as seq, coalesce(bool_or(pred_claimed_by is null and pred_available_at > now()), false) as pred_waits
    from judged
   where pred is not null and pred not in (select seq from candidate)
     and (pred_claimed_by is distinct from $1::bigint or pred <> all ($7::bigint[]))
   group by key
), claimed as (
  update ${s}.outbox_queue q
     set claimed_by = $1::bigint, rescues = q.rescues + coalesce(q.claimed_by <> $1::bigint, false)::integer
    from judged j left join wall w on w.key = j.key
   where q.seq = j.seq and (w.seq is null or j.seq < w.seq)
  returning q.seq, q.key, q.attempts, coalesce(j.claimed_by <> $1::bigint, false) as rescued, q.done
), passed as (
  update ${s}.outbox_queue q set claimed_by = null, available_at = null
    from judged j join wall w on w.key = j.key
   where q.seq = j.seq and j.seq >= w.seq and (j.claimed_by is not null or (j.due and not w.pred_waits))
), scan as (
  select (select count(*)::integer from ready) as examined,
         (select max(seq) from ready) as reached,
         (select count(*)::integer from due) as due_examined,
         (select array_agg(j.seq) from judged j join wall w on w.key = j.key
           where w.pred_waits and j.seq >= w.seq) as blocked,
         (select (extract(epoch from q.available_at - now()) * 1000)::double precision from ${s}.outbox_queue q
           where q.available_at > now() and q.available_at < 'infinity'
           order by q.available_at limit 1) as due_in_ms
)
select e.seq, e.key, e.attempts, e.rescued, e.done, e.id, e.aggregate_type, e.aggregate_id, e.event_type,
       e.schema_version, e.ordering_key, e.payload, e.headers, e.created_at,
       n.examined, n.reached, n.due_examined, n.blocked, n.due_in_ms, e.shelved
  from scan n left join (
    select c.seq, c.key, c.attempts, c.rescued, c.done, l.id, l.aggregate_type, l.aggregate_id, l.event_type,
           l.schema_version, l.ordering_key, l.headers::text as headers,
           case when octet_length(t.payload) <= $6::integer then t.payload end as payload,
           extract(epoch from l.created_at) * 1000 as created_at,
           array(select d.destination from ${s}.outbox_destinations d
                  where exists (select from ${s}.outbox_shelf h
                                 where h.key = c.key and h.destination = d.destination and h.seq < c.seq)) as shelved
      from claimed c left join ${s}.outbox_events l on l.seq = c.seq
      left join lateral (select l.payload::text as payload offset 0) t on pg_column_size(l.payload) <= $6::integer
  ) e on true`;

/** $1 token, $2 seqs, $3 which targets each has, $4 the targets. */
export const olderSettleSql = `
with gone as (
  delete from ${s}.outbox_queue q where q.seq = any ($2::bigint[]) and q.claimed_by = $1::bigint
  returning q.seq, q.attempts
), recorded as (
  insert into ${s}.outbox_deliveries (relay, attempts, targets, seqs)
  select $1::bigint, g.attempts + 1, t.targets, range_agg(int8range(g.seq, g.seq, '[]'))
    from gone g
    join unnest($2::bigint[], $3::integer[]) as i(seq, targets) on i.seq = g.seq
    join (select ordinality, array(select jsonb_array_elements_text(value)) as targets
            from jsonb_array_elements($4::text::jsonb) with ordinality) t on t.ordinality = i.targets
   group by g.attempts, t.targets
)
select array(select i.seq from unnest($2::bigint[]) as i(seq) where i.seq not in (select seq from gone))`;
