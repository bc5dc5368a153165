import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';

const indexesMax = 10_000;

// The part after the table's name identifies an index, because names differ between partitions. Definitions are compared as
// text, which quote_all_identifiers changes. The subquery turns it off for this transaction; a condition that depends on no
// table is evaluated once, before the first row is read.
const examineIndexesSql = `
select json_build_object(
  'name', x.relname, 'table', c.relname,
  'partitionOf', (select p.relname from pg_inherits h join pg_class p on p.oid = h.inhparent where h.inhrelid = c.oid),
  'definition', case when i.indisunique then 'unique ' else '' end
                || regexp_replace(pg_get_indexdef(i.indexrelid), '^CREATE (UNIQUE )?INDEX .* USING ', ''),
  'constraint', (select k.conname from pg_constraint k where k.conindid = i.indexrelid and k.conrelid = c.oid limit 1),
  'valid', i.indisvalid and i.indisready,
  'building', exists (select from pg_stat_progress_create_index b where b.index_relid = i.indexrelid),
  'scans', coalesce(s.idx_scan, 0),
  'bytes', case when x.relkind = 'i' then pg_relation_size(x.oid) else 0 end,
  'liveRows', coalesce(t.n_live_tup, 0)
)::text as json
  from pg_index i
  join pg_class x on x.oid = i.indexrelid
  join pg_class c on c.oid = i.indrelid
  join pg_namespace n on n.oid = c.relnamespace
  left join pg_stat_all_indexes s on s.indexrelid = i.indexrelid
  left join pg_stat_all_tables t on t.relid = i.indrelid
 where n.nspname = $1::text and (c.relname like 'outbox\\_%' or c.relname in ('processed_events', 'migrations'))
   and (select set_config('quote_all_identifiers', 'off', true)) = 'off'
 order by c.relname, x.relname limit ${indexesMax}`;

/** An index on a table of the outbox. */
export interface IndexFacts {
  name: string;
  table: string;
  /** The parent table, if its table is a partition. */
  partitionOf: string | null;
  /** `unique btree (id)`, `btree (key, seq) WHERE (key IS NOT NULL)`. */
  definition: string;
  /** Its constraint: a primary key, a unique constraint. */
  constraint: string | null;
  /** Whether queries may use it. An interrupted build leaves an index that is only written to. */
  valid: boolean;
  /** Whether it is being built now. */
  building: boolean;
  scans: number;
  bytes: number;
  /** Estimated rows of its table. */
  liveRows: number;
}

export function examineIndexes(db: Executor, schema: string): Promise<IndexFacts[]> {
  return readJson<IndexFacts>(db, examineIndexesSql, [schema]);
}
