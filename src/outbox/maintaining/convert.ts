import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';
import type { PartitionUnit } from './partition.ts';

// Three statements, each in its own transaction. The first and the last lock the log briefly and give up after 200 ms; the
// second reads all of it and blocks no session. An interrupted conversion starts again.
const constrainSql = perSchema((s) => `select from ${s}.constrain_log()`);
const unconstrainSql = perSchema((s) => `select from ${s}.unconstrain_log()`);
const validateSql = perSchema((s) => `select from ${s}.validate_log()`);
const partitionSql = perSchema((s) => `select to_json(${s}.partition_log($1::text))::text as json`);

/** Adds the constraint that every row fits the first partition. */
export async function constrainLog(db: Executor, schema: string): Promise<void> {
  await db.query(constrainSql(schema));
}

/** Removes the constraint: an abandoned conversion leaves nothing behind. */
export async function unconstrainLog(db: Executor, schema: string): Promise<void> {
  await db.query(unconstrainSql(schema));
}

/** Validates the constraint, which takes as long as reading the log. The conversion then need not read it. */
export async function validateLog(db: Executor, schema: string): Promise<void> {
  await db.query(validateSql(schema));
}

/** Converts the log to partition 0 of itself. False: it was already partitioned; then only the unit may have changed. */
export async function partitionLog(db: Executor, schema: string, unit: PartitionUnit): Promise<boolean> {
  const [converted] = await readJson<boolean>(db, partitionSql(schema), [unit]);
  return converted as boolean;
}

// A lock most likely waits for the session with the longest transaction. Only this database counts: in another one, which may
// be a copy, the same oid can be a different table.
const holderSql = `
select json_build_object(
  'pid', a.pid, 'user', a.usename, 'application', a.application_name, 'state', a.state,
  'sinceMs', floor(extract(epoch from clock_timestamp() - a.xact_start) * 1000), 'query', left(a.query, 200))::text as json
  from pg_stat_activity a
 where a.datname = current_database() and a.pid <> pg_backend_pid() and a.xact_start is not null and exists (
   select from pg_locks l where l.pid = a.pid and l.granted
      and l.relation in (to_regclass(format('%I.outbox_events', $1::text)), to_regclass(format('%I.outbox_deliveries', $1::text))))
 order by a.xact_start limit 1`;

/** A session that has locked the log or the record. */
export interface LockHolder {
  pid: number;
  user: string | null;
  application: string | null;
  state: string | null;
  sinceMs: number;
  query: string | null;
}

/** The session that has blocked the lock on the log for longest, if there still is one. */
export async function findLockHolder(db: Executor, schema: string): Promise<LockHolder | undefined> {
  const [holder] = await readJson<LockHolder>(db, holderSql, [schema]);
  return holder;
}
