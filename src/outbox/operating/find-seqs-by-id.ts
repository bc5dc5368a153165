import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';

// As a subquery, the list is parsed once; otherwise PostgreSQL may parse it for each row.
const findSeqsByIdSql = perSchema(
  (s) => `
select json_build_object('id', id, 'seq', seq::text)::text as json
  from ${s}.outbox_events where id = any (array(select unnest($1::text::uuid[])))`,
);

/**
 * The seqs of events by their ids, in no particular order. Unknown ids are left out; an id that exists in several partitions
 * yields several seqs.
 */
export async function findSeqsById(
  db: Executor,
  schema: string,
  ids: readonly string[],
): Promise<{ id: string; seq: string }[]> {
  return readJson<{ id: string; seq: string }>(db, findSeqsByIdSql(schema), [arrayText(ids)]);
}
