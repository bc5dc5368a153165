import type { Executor } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';

const loadSql = perSchema((s) => `select payload::text as payload from ${s}.outbox_events where seq = $1::bigint`);

/** The payload of one event that was too large to come with its claim, as JSON text. */
export async function load(db: Executor, schema: string, seq: string): Promise<string | undefined> {
  const { rows } = await db.query(loadSql(schema), [seq]);
  return rows[0]?.['payload'] as string | undefined;
}
