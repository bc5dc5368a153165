import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';
import { countOrphans, nextPart, orphansMax } from './count-orphans.ts';

const boundsSql = perSchema(
  (s) => `
select json_build_object('first', (select min(seq) from ${s}.outbox_events)::text,
                         'last', (select max(seq) from ${s}.outbox_events)::text)::text as json`,
);

/** Searching one part takes 1 ms where batches were settled, 25 ms where each event was settled alone. */
const partSeqs = 20_000;
const partsMax = 20;

/** Orphans in the log. */
export interface OrphanFacts {
  /** How many were found: a lower bound if `exact` is false. */
  orphans: number;
  /** Whether the count is exact: the whole log was read, and no part of it has 1,000 or more. */
  exact: boolean;
  /** Whether the whole log was read. A log of more than 400,000 seqs is sampled: the newest 200,000, and ten parts before. */
  complete: boolean;
}

export async function examineOrphans(db: Executor, schema: string): Promise<OrphanFacts> {
  const [bounds] = await readJson<{ first: string | null; last: string | null }>(db, boundsSql(schema));
  if (!bounds?.first || !bounds.last) return { orphans: 0, exact: true, complete: true };
  const { starts, complete } = sample(BigInt(bounds.first), BigInt(bounds.last));
  let orphans = 0;
  let exact = complete;
  let reached = 0n;
  for (const start of starts) {
    const part = await nextPart(db, schema, String(start > reached ? start : reached), partSeqs);
    if (part === undefined) break;
    const found = await countOrphans(db, schema, part);
    orphans += found;
    if (found >= orphansMax) exact = false;
    reached = BigInt(part.beyond);
  }
  return { orphans, exact, complete };
}

/** First seqs of the parts to read, lowest first. */
function sample(first: bigint, last: bigint): { starts: bigint[]; complete: boolean } {
  const [size, half] = [BigInt(partSeqs), BigInt(partsMax / 2)];
  const span = last - first + 1n;
  const each = Array.from({ length: partsMax / 2 }, (_, n) => BigInt(n));
  if (span <= 2n * half * size) {
    return { starts: [...each, ...each.map((n) => n + half)].map((n) => first + n * size), complete: true };
  }
  const newest = last + 1n - half * size;
  const starts = [...each.map((n) => first + ((newest - first) * n) / half), ...each.map((n) => newest + n * size)];
  return { starts, complete: false };
}
