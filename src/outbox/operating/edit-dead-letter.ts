import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** See migrations/routines/edit_dead_letter.sql for the contract and the rationale. */
const editDeadLetterSql = perSchema(
  (s) => `
select coalesce(${s}.edit_dead_letter($1::text::bigint, $2::text::jsonb, $3::text, $4::text), 'null')::text as json`,
);

/** Writes a new payload and puts the event back into the queue. Returns the keys that it blocked; `undefined`: no such dead letter. */
export async function editDeadLetter(
  db: Executor,
  schema: string,
  edit: { seq: string; payloadJson: string; by: string; reason: string },
): Promise<{ freedKeys: string[] } | undefined> {
  const values = [edit.seq, edit.payloadJson, edit.by, edit.reason];
  const [result] = await readJson<{ count: number; freedKeys: string[] } | null>(db, editDeadLetterSql(schema), values);
  return result?.count === 1 ? { freedKeys: result.freedKeys } : undefined;
}
