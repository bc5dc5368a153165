import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** Payload and headers up to this many bytes are returned by the claim; larger ones are loaded before delivery. */
export const inlineBytesMax = 16_384;

// The text of a jsonb value has at least an eighth of its stored bytes (an array of zeros comes closest, with a quarter). So
// a value stored in more than eight times the limit exceeds it and need not be converted. OFFSET 0 keeps the text from being
// computed twice. Headers that the claim returned are not sent again. The last edit of an operator replaces the payload of the log.
export const loadPayloadSql = perSchema(
  (s) => `
select case when f.fits then t.payload end as payload, case when f.fits then h.headers end as headers, f.bytes
  from (
    select e.seq, e.headers, coalesce((
             select x.payload from ${s}.outbox_edits x where x.seq = e.seq order by x.number desc limit 1), e.payload) as payload
      from ${s}.outbox_events e where e.seq = $1::bigint offset 0
  ) l
  left join lateral (
    select ${s}.plain_payload(l.payload)::text as payload where pg_column_size(l.payload) / 8 <= $2::bigint offset 0
  ) t on true
  left join lateral (
    select x.headers from (select l.headers::text as headers offset 0) x where octet_length(x.headers) > ${inlineBytesMax} offset 0
  ) h on true
  cross join lateral (
    select coalesce(octet_length(t.payload), pg_column_size(l.payload) / 8) + coalesce(octet_length(h.headers), 0) as bytes,
           octet_length(t.payload) + coalesce(octet_length(h.headers), 0) <= $2::bigint as fits offset 0
  ) f`,
);

export interface LoadedPayload {
  /** JSON text; `undefined` if it exceeds `bytesMax`. */
  json: string | undefined;
  /** JSON text of the headers, if the claim did not return them. */
  headersJson?: string | undefined;
  /** Bytes of both texts. A lower bound if they are far over the limit. */
  bytes: number;
}

/** Loads what a claim left out of one event, up to `bytesMax` bytes. `undefined`: the event was deleted from the log. */
export async function loadPayload(
  db: Executor,
  schema: string,
  seq: string,
  bytesMax: number,
): Promise<LoadedPayload | undefined> {
  const { rows } = await db.query(loadPayloadSql(schema), [seq, bytesMax]);
  const row = rows[0] as { payload: string | null; headers: string | null; bytes: number } | undefined;
  return row && { json: row.payload ?? undefined, headersJson: row.headers ?? undefined, bytes: row.bytes };
}
