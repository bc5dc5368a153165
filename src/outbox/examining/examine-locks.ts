import type { Executor } from '../../database/executor.ts';
import { defaultQueue } from '../../queue-name.ts';
import { readJson } from '../read-json.ts';
import type { SnapshotHolder } from './examine-snapshots.ts';

const holdersMax = 20;

// The lock keys are those of the statements that take the locks: lock_keys and emit_one (gate, key), lock_new_ids (id),
// prune_events, replay and requeue_unqueued (prune), the functions that change partitions and repair_sequence (partitions),
// forget_target, cancel_events, end_cancelled, make_due and unshelve (unshelve), claims and pause_queue (queue), hold_relay_lock (relay),
// migrate.ts.
//
// A relay holds its own lock for as long as it runs: only other sessions that hold one are reported.
//
// A lock of one 64-bit number has its halves in classid and objid. The number of a key lock can be anything. It is recognised
// by the session that waits for it, which has locked a gate before.
//
// PostgreSQL does not report how long a lock has been held. A transaction got its locks after it began; an idle session got
// them before its last statement ended. Both times are hidden from a role without pg_read_all_stats, but not how long other
// sessions wait.
const examineLocksSql = `
with number as (
  select hashtextextended($1::text, 0) as salt
), named as materialized (
  select 'unshelve' as lock, hashtextextended('postcommit.unshelve', n.salt) as key from number n
  union all select 'partitions', hashtextextended('postcommit.partitions', n.salt) from number n
  union all select 'prune', hashtextextended('postcommit.prune.' || $1::text, 42)
  union all select 'migrate', hashtextextended('postcommit.migrate.' || $1::text, 42)
  union all select 'queue', hashtextextended('postcommit.queue.' || q.name, n.salt)
              from number n, jsonb_array_elements_text($2::text::jsonb) as q(name)
), advisory as materialized (
  select l.pid, l.virtualtransaction as session, l.classid, l.objid, l.objsubid, l.granted, l.waitstart,
         case when l.objsubid = 2 then case l.classid::bigint - (n.salt & 1048575)
                when 1886352483 then 'gate' when 1886352483 + 1048576 then 'id'
                when 1886352483 + 2097152 then 'relay' end
              else (select m.lock from named m where m.key = (l.classid::bigint << 32 | l.objid::bigint)) end as lock
    from pg_locks l, number n
   where l.locktype = 'advisory' and l.database = (select d.oid from pg_database d where d.datname = current_database())
), ours as materialized (
  select a.pid, a.session, a.classid, a.objid, a.objsubid, a.granted, a.waitstart, coalesce(a.lock, case
           when a.objsubid = 1 and exists (
             select from advisory w join advisory g on g.session = w.session and g.granted and g.lock = 'gate'
              where not w.granted and (w.classid, w.objid, w.objsubid) = (a.classid, a.objid, a.objsubid)) then 'key' end
         ) as lock
    from advisory a
), held as (
  select o.pid, o.session, array_agg(distinct o.lock order by o.lock) as locks, count(distinct w.session) as waiters,
         max(extract(epoch from clock_timestamp() - w.waitstart)) * 1000 as waited_ms
    from ours o
    left join ours w on not w.granted and w.session <> o.session
                        and (w.classid, w.objid, w.objsubid) = (o.classid, o.objid, o.objsubid)
   where o.granted and o.lock is not null and o.pid is distinct from pg_backend_pid()
   group by o.pid, o.session
), described as (
  select h.waiters, floor(h.waited_ms) as waited_ms, h.locks, a.usename, a.application_name, a.client_addr, a.state, a.query,
         h.pid, p.gid, p.owner,
         floor(extract(epoch from clock_timestamp() - coalesce(a.xact_start, a.state_change, p.prepared)) * 1000) as age_ms
    from held h
    left join pg_stat_activity a on a.pid = h.pid
    -- Locks of a prepared transaction have no process. One of them is on its transaction id.
    left join pg_locks t on h.pid is null and t.pid is null and t.virtualtransaction = h.session
                            and t.locktype = 'transactionid' and t.granted
    left join pg_prepared_xacts p on p.transaction = t.transactionid
   where not (h.locks = '{relay}' and coalesce(a.application_name, '') like 'postcommit heartbeat%')
)
select json_build_object(
  'kind', case when d.pid is null then 'prepared' else 'session' end, 'name', coalesce(d.pid::text, d.gid),
  'role', coalesce(d.usename, d.owner), 'application', nullif(d.application_name, ''), 'address', host(d.client_addr),
  'state', d.state, 'query', nullif(left(d.query, 2000), '<insufficient privilege>'), 'locks', d.locks, 'ageMs', d.age_ms,
  'waiters', d.waiters, 'waitedMs', d.waited_ms)::text as json
  from described d
 order by d.waited_ms desc nulls last, d.age_ms desc nulls first limit ${holdersMax}`;

/** What an advisory lock of the outbox is for. */
export type OutboxLock = 'gate' | 'key' | 'id' | 'prune' | 'partitions' | 'unshelve' | 'relay' | 'migrate' | 'queue';

/** A session, or a prepared transaction, that holds advisory locks of the outbox. */
export interface AdvisoryLockHolder
  extends Pick<SnapshotHolder, 'name' | 'role' | 'application' | 'address' | 'state' | 'query'> {
  kind: 'session' | 'prepared';
  locks: OutboxLock[];
  /** Age of its transaction, or how long it has been idle; `null` if this role may not see it. */
  ageMs: number | null;
  /** Sessions that wait for one of its locks. */
  waiters: number;
  /** How long the first of them has waited; `null` if there is none. */
  waitedMs: number | null;
}

/** Sorted by the longest wait of other sessions, then oldest first. Locks of named queues are recognised for `queues`. */
export function examineLocks(
  db: Executor,
  schema: string,
  queues: readonly string[] = [defaultQueue],
): Promise<AdvisoryLockHolder[]> {
  return readJson<AdvisoryLockHolder>(db, examineLocksSql, [schema, JSON.stringify(queues)]);
}
