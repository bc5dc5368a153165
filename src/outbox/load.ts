import type { Executor } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';

/** Payloads up to this size come with their claim, larger ones are loaded when their turn comes. */
export const inlineBytesMax = 16_384;

// The text of a jsonb value has at least an eighth of its stored bytes (an array of zeros comes closest, with a quarter).
// So a value that is stored in more than eight times the limit need not be converted to know that it is over the limit.
// OFFSET 0 keeps the text from being made twice.
export const loadSql = perSchema(
  (s) => `
select case when octet_length(t.payload) <= $2::bigint then t.payload end as payload,
       coalesce(octet_length(t.payload), pg_column_size(l.payload) / 8) as bytes
  from ${s}.outbox_events l
  left join lateral (
    select l.payload::text as payload where pg_column_size(l.payload) / 8 <= $2::bigint offset 0
  ) t on true
 where l.seq = $1::bigint`,
);

export interface LoadedPayload {
  /** JSON text; `undefined` when it has more bytes than asked for. */
  json: string | undefined;
  /** Bytes of the text. At least this many when the text is far over the limit. */
  bytes: number;
}

/** Loads the payload of one event, if it has at most `bytesMax` bytes. `undefined`: the event was deleted from the log. */
export async function load(
  db: Executor,
  schema: string,
  seq: string,
  bytesMax: number,
): Promise<LoadedPayload | undefined> {
  const { rows } = await db.query(loadSql(schema), [seq, bytesMax]);
  const row = rows[0] as { payload: string | null; bytes: number } | undefined;
  return row && { json: row.payload ?? undefined, bytes: row.bytes };
}
