import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';

const examineTriggersSql = `
select json_build_object(
  'triggers', (select coalesce(json_agg(json_build_object(
                 'name', t.tgname, 'table', c.relname, 'fires', t.tgenabled)), '[]')
                 from pg_trigger t join pg_class c on c.oid = t.tgrelid
                where c.relnamespace = n.oid and not t.tgisinternal and c.relname not like 'outbox\\_events\\_p%'),
  'routines', (select coalesce(json_agg(distinct p.proname), '[]') from pg_proc p where p.pronamespace = n.oid),
  'statusView', exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'outbox_status' and c.relkind = 'v'),
  -- By the catalogue: looking the sequence up by name takes rights.
  'seqCache', (select q.seqcache::integer from pg_depend d
                 join pg_class c on c.oid = d.refobjid and c.relnamespace = n.oid and c.relname = 'outbox_events'
                 join pg_sequence q on q.seqrelid = d.objid
                where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.deptype = 'i')
)::text as json
  from pg_namespace n where n.nspname = $1::text`;

/** What emitting and relaying need besides tables and indexes. */
export interface TriggerFacts {
  /** `A`: always. `O`: not with session_replication_role = replica. `R`: only then. `D`: never. */
  triggers: { name: string; table: string; fires: 'A' | 'O' | 'R' | 'D' }[];
  /** The names of all functions and procedures of the schema. */
  routines: string[];
  /** Whether there is a view outbox_status. */
  statusView: boolean;
  /** How many seqs a session draws at once; `null` if the log's `seq` has no sequence. */
  seqCache: number | null;
}

export async function examineTriggers(db: Executor, schema: string): Promise<TriggerFacts> {
  const [facts] = await readJson<TriggerFacts>(db, examineTriggersSql, [schema]);
  return facts ?? { triggers: [], routines: [], statusView: false, seqCache: null };
}
