import type { Executor } from '../../database/executor.ts';
import { perSchema, quoteIdentifier } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const examineInboxSql = perSchema(
  (s) => `
select json_build_object(
  'oldestMs', (select extract(epoch from now() - p.processed_at) * 1000
                 from ${s}.processed_events p order by p.processed_at limit 1),
  'hasOutbox', to_regclass($1::text) is not null
)::text as json`,
);

/** Facts about the inbox of a schema. */
export interface InboxFacts {
  /** The age of the oldest record; `null` if there are none. */
  oldestMs: number | null;
  /** Whether the schema has an outbox too, and so possibly relays that do maintenance. */
  hasOutbox: boolean;
}

export async function examineInbox(db: Executor, schema: string): Promise<InboxFacts> {
  const [facts] = await readJson<InboxFacts>(db, examineInboxSql(schema), [
    `${quoteIdentifier(schema)}.outbox_maintenance`,
  ]);
  return facts as InboxFacts;
}
