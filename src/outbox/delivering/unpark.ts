import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';

/**
 * Looks at keys with parked events or blocking dead letters, at most $2, in order. `parked` says whether an event is parked
 * before the first of the key's dead letters. Skips from key to key, so that it reads three rows of a key with a million parked
 * events.
 */
const findParkedSql = perSchema((s) => {
  const first = (condition: string) =>
    `select q.key, q.seq from ${s}.outbox_queue q
      where coalesce(q.available_at, '-infinity') = 'infinity' and ${condition} order by q.key, q.blocking, q.seq limit 1`;
  return `
with recursive waiting as (
  select f.key, 1 as number from (${first('q.key > $1::text::bigint')}) f
  union all
  select f.key, w.number + 1
    from waiting w cross join lateral (${first('q.key > w.key')}) f where w.number < $2::text::integer
)
select json_build_object('key', w.key::text, 'parked', coalesce(p.seq < b.seq, p.seq is not null))::text as json
  from waiting w
  left join lateral (${first('q.key = w.key and not q.blocking')}) p on true
  left join lateral (${first('q.key = w.key and q.blocking')}) b on true
 order by w.key`;
});

interface WaitingKey {
  key: string;
  parked: boolean;
}

/** See migrations/routines/unpark.sql for the contract and the rationale. */
const unparkSql = perSchema(
  (s) => `select ${s}.unpark($1::text::bigint[], $2::text::bigint, $3::text::integer)::text as json`,
);

/** Keys per search, which takes some 100 ms for them. */
const searchMax = 10_000;
const keysMax = 1_000;
const rowsMax = 1_000;
const passesMax = 20;
const lowestKey = '-9223372036854775808';

/**
 * Makes every event ready that is parked (available_at 'infinity') behind a resolved dead letter. Call it after the statement
 * that freed the key has committed. Returns the number of events.
 *
 * Why no event stays parked forever: `defer` parks an event F behind a waiting event P of its key, under a share lock on P,
 * and only while P's latest version waits. Freeing or unparking P is an update of P, so it happens either
 * - first: then `defer` skips P, which is locked or no longer waiting, and does not park F behind it;
 * - or afterwards: then it waits for `defer` to commit, and any later statement sees F as parked.
 *
 * Because of the second case one pass is not enough: F may be parked behind P, itself only parked, while a pass runs with a
 * snapshot that shows F as ready. So passes repeat until one finds nothing to unpark. In the snapshot of the last pass, no
 * event is parked without a blocking one before it; whatever is parked later is behind a chain of waiting events that begins
 * with a blocking one, and is unparked when that one is resolved. An unnecessary unpark is harmless: the next claim finds the
 * event blocked and `defer` parks it again.
 *
 * Without `keys` it processes all of them, and so also unparks what was left when an operator's process was killed between
 * freeing a key and this call. That looks at every key with parked events, so a bulk operation passes the keys that each chunk
 * freed, and processes all keys once, at its end. Passes are limited because an event inserted with available_at 'infinity' blocks its
 * key without being marked as blocking, and its followers would be unparked and parked again.
 */
export async function unpark(db: Executor, schema: string, keys?: readonly string[]): Promise<number> {
  let unparked = 0;
  for (let pass = 1; pass <= passesMax; pass++) {
    const count = keys ? await unparkKeys(db, schema, keys) : await unparkAll(db, schema);
    unparked += count;
    if (count === 0) break;
  }
  return unparked;
}

async function unparkAll(db: Executor, schema: string): Promise<number> {
  let unparked = 0;
  for (let after: string | undefined = lowestKey; after !== undefined; ) {
    const found: WaitingKey[] = await readJson<WaitingKey>(db, findParkedSql(schema), [after, String(searchMax)]);
    const keys = found.filter(({ parked }) => parked).map(({ key }) => key);
    unparked += await unparkKeys(db, schema, keys);
    after = found.length < searchMax ? undefined : found.at(-1)?.key;
  }
  return unparked;
}

async function unparkKeys(db: Executor, schema: string, given: readonly string[]): Promise<number> {
  const keys = [...given].sort((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1));
  let unparked = 0;
  for (let i = 0; i < keys.length; i += keysMax) unparked += await unparkSome(db, schema, keys.slice(i, i + keysMax));
  return unparked;
}

interface UnparkedChunk {
  count: number;
  /** The last key and its last seq. */
  key: string | null;
  seq: string | null;
}

/** In chunks, each from the last seq: starting from the first row of a key each time would be quadratic. */
async function unparkSome(db: Executor, schema: string, keys: readonly string[]): Promise<number> {
  let unparked = 0;
  for (let [left, after] = [keys, '0']; left.length > 0; ) {
    const values: string[] = [arrayText(left), after, String(rowsMax)];
    const [chunk] = await readJson<UnparkedChunk>(db, unparkSql(schema), values);
    if (!chunk) break;
    unparked += chunk.count;
    if (chunk.count < rowsMax || chunk.key === null || chunk.seq === null) break;
    left = left.slice(left.indexOf(chunk.key));
    after = chunk.seq;
  }
  return unparked;
}
