import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** The tables that turn over all the time. */
const busyTables = ['outbox_queue', 'outbox_shelf'] as const;

// Autovacuum analyzes them after 50,000 changes. Twice as many without ANALYZE for ten minutes means that it is off or too
// slow. PostgreSQL before 17 has no MAINTAIN and would fail on the name.
const staleSql = `
select json_build_object('table', c.relname, 'allowed',
         pg_has_role(c.relowner, 'USAGE')
         or case when current_setting('server_version_num')::integer >= 170000
                 then has_table_privilege(c.oid, 'MAINTAIN') else false end)::text as json
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  join pg_stat_all_tables t on t.relid = c.oid
 where n.nspname = $1::text and c.relname = any ($2::text::text[])
   and t.n_mod_since_analyze > 100000
   and coalesce(greatest(t.last_analyze, t.last_autoanalyze), '-infinity') not between now() - interval '10 minutes' and now()
 order by c.relname`;

// SKIP_LOCKED: waiting for the lock of autovacuum would make PostgreSQL cancel the autovacuum.
const analyzeSql = {
  outbox_queue: perSchema((s) => `analyze (skip_locked) ${s}.outbox_queue`),
  outbox_shelf: perSchema((s) => `analyze (skip_locked) ${s}.outbox_shelf`),
};

export interface Analyzed {
  analyzed: string[];
  /** Stale tables that this role may not analyze: only their owner may, or a role with MAINTAIN (PostgreSQL 17). */
  forbidden: string[];
}

/**
 * Refreshes the statistics of the busy tables if autovacuum does not: with statistics of an empty queue, claims from a long
 * one can get bad plans. Reads a sample of bounded size. Safe to repeat.
 */
export async function analyze(db: Executor, schema: string): Promise<Analyzed> {
  const stale = await readJson<{ table: (typeof busyTables)[number]; allowed: boolean }>(db, staleSql, [
    schema,
    `{${busyTables.join(',')}}`,
  ]);
  const result: Analyzed = { analyzed: [], forbidden: [] };
  for (const { table, allowed } of stale) {
    // Without the privilege, ANALYZE only warns and does nothing.
    if (allowed) await db.query(analyzeSql[table](schema), []);
    (allowed ? result.analyzed : result.forbidden).push(table);
  }
  return result;
}
