import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';

/** Includes partitions: an outbox with years of daily partitions has some thousands of tables. */
const tablesMax = 5_000;

const examineTablesSql = `
select json_build_object(
  'name', c.relname,
  'partitionOf', (select p.relname from pg_inherits i join pg_class p on p.oid = i.inhparent where i.inhrelid = c.oid),
  'partitioned', c.relkind = 'p',
  'options', coalesce(c.reloptions, '{}'),
  'bytes', case when c.relkind = 'r' then pg_table_size(c.oid) else 0 end,
  'liveRows', coalesce(s.n_live_tup, 0), 'deadRows', coalesce(s.n_dead_tup, 0),
  'changedSinceAnalyze', coalesce(s.n_mod_since_analyze, 0),
  'vacuumedMsAgo', floor(extract(epoch from now() - greatest(s.last_vacuum, s.last_autovacuum)) * 1000),
  'analyzedMsAgo', floor(extract(epoch from now() - greatest(s.last_analyze, s.last_autoanalyze)) * 1000)
)::text as json
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  left join pg_stat_all_tables s on s.relid = c.oid
 where n.nspname = $1::text and c.relkind in ('r', 'p')
   and (c.relname like 'outbox\\_%' or c.relname in ('processed_events', 'migrations'))
 order by c.relname limit ${tablesMax}`;

/** A table of the outbox with its statistics: rows are estimates. */
export interface TableFacts {
  name: string;
  /** The parent table, if it is a partition. */
  partitionOf: string | null;
  partitioned: boolean;
  /** Storage parameters: `autovacuum_vacuum_threshold=5000`. */
  options: string[];
  bytes: number;
  liveRows: number;
  deadRows: number;
  changedSinceAnalyze: number;
  /** `null`: never. */
  vacuumedMsAgo: number | null;
  analyzedMsAgo: number | null;
}

export function examineTables(db: Executor, schema: string): Promise<TableFacts[]> {
  return readJson<TableFacts>(db, examineTablesSql, [schema]);
}
