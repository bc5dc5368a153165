import type { Executor } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';
import { arrayText, readJson } from './read-json.ts';

const resolveSql = perSchema(
  (s) => `select to_json(seq::text)::text as json from ${s}.outbox_events where id = any ($1::text::uuid[])`,
);

/** The seqs of events by their ids, in no particular order. Ids that do not exist are left out. */
export async function resolve(db: Executor, schema: string, ids: readonly string[]): Promise<string[]> {
  return readJson<string>(db, resolveSql(schema), [arrayText(ids)]);
}
