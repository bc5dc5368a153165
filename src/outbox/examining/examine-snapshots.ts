import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';

const holdersMax = 20;

// Only what prevents vacuum from cleaning this database's tables: its sessions, walsenders of standbys with
// hot_standby_feedback, prepared transactions, and slots. Vacuum itself is ignored: PostgreSQL does not wait for it either.
// Ages come from the server; the age of an xid is in transactions, not time.
const examineSnapshotsSql = `
select h.json::text as json from (
  select greatest(age(a.backend_xmin), age(a.backend_xid)) as xids, json_build_object(
    'kind', case when a.backend_type = 'walsender' then 'standby' else 'session' end,
    'name', a.pid::text, 'role', a.usename, 'application', nullif(a.application_name, ''),
    'address', host(a.client_addr), 'state', a.state, 'query', left(a.query, 2000),
    'xids', greatest(age(a.backend_xmin), age(a.backend_xid)),
    'ageMs', floor(extract(epoch from clock_timestamp() - coalesce(a.xact_start, a.backend_start)) * 1000)
  ) as json
    from pg_stat_activity a
   where (a.backend_xmin is not null or a.backend_xid is not null) and a.pid <> pg_backend_pid()
     and (a.datname = current_database() or a.datname is null or a.backend_type = 'walsender')
     and a.backend_type is distinct from 'autovacuum worker'
  union all
  select age(p.transaction), json_build_object(
    'kind', 'prepared', 'name', p.gid, 'role', p.owner, 'xids', age(p.transaction),
    'ageMs', floor(extract(epoch from clock_timestamp() - p.prepared) * 1000))
    from pg_prepared_xacts p where p.database = current_database()
  union all
  select age(s.xmin), json_build_object('kind', 'slot', 'name', s.slot_name, 'xids', age(s.xmin))
    from pg_replication_slots s where s.xmin is not null
) h order by h.xids desc limit ${holdersMax}`;

const hiddenSessionsSql = `
select to_json(count(*)::integer)::text as json from pg_stat_activity a
 where a.datname = current_database() and a.query = '<insufficient privilege>'`;

/** A holder of a snapshot: rows deleted since stay in the tables until it is released. */
export interface SnapshotHolder {
  kind: 'session' | 'standby' | 'prepared' | 'slot';
  /** The process id of a session, or the name of anything else. */
  name: string;
  role?: string | null;
  application?: string | null;
  address?: string | null;
  /** `idle in transaction`, `active`. */
  state?: string | null;
  query?: string | null;
  /** Transactions that began since. */
  xids: number;
  /** Absent for a slot. */
  ageMs?: number;
}

export interface SnapshotFacts {
  /** Oldest first. */
  holders: SnapshotHolder[];
  /** Sessions of this database that this role may not see. */
  hidden: number;
}

export async function examineSnapshots(db: Executor): Promise<SnapshotFacts> {
  const holders = await readJson<SnapshotHolder>(db, examineSnapshotsSql);
  const [hidden] = await readJson<number>(db, hiddenSessionsSql);
  return { holders, hidden: hidden ?? 0 };
}
