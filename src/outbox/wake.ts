import type { Executor } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';
import { readJson } from './read-json.ts';

// `before` is the first held event of the key, if there is one: what is parked behind that stays parked.
const findParkedSql = perSchema(
  (s) => `
with parked as materialized (
  select key, min(seq) as seq from ${s}.outbox_queue
   where available_at = 'infinity' and not held and key > $1::text::bigint group by key
), wall as materialized (
  select key, min(seq) as seq from ${s}.outbox_queue
   where available_at = 'infinity' and held and key is not null group by key
)
select json_build_object('key', p.key::text, 'before', w.seq::text)::text as json
  from parked p left join wall w on w.key = p.key
 where w.seq is null or p.seq < w.seq
 order by p.key limit $2::text::integer`,
);

const wakeSql = perSchema(
  (s) => `
with parked as materialized (
  select seq from ${s}.outbox_queue
   where key = $1::text::bigint and seq > $2::text::bigint and seq < $3::text::bigint
     and available_at = 'infinity' and not held
   order by seq limit $4::text::integer for update
), woken as (
  update ${s}.outbox_queue q set available_at = null where q.seq = any (array(select seq from parked))
)
select json_build_object('count', count(*), 'reached', max(seq)::text)::text as json from parked`,
);

const keysMax = 1_000;
const rowsMax = 1_000;
const passesMax = 20;
const lowestKey = '-9223372036854775808';
const endOfLog = '9223372036854775807';

/**
 * Wakes every event that is parked (available_at 'infinity') behind a held dead letter that is there no more. To be
 * called after the statement that freed the key has committed. Answers how many it woke.
 *
 * Why nothing stays parked for ever. `defer` parks an event F behind a waiting event P of its key, under a share lock
 * on P, and only while P's latest version waits. Freeing or waking P is an update of P, so it comes either
 * - first: then `defer` skips P, locked or no longer waiting, and does not park behind it;
 * - or after: then it waits for `defer` to commit, so that F is parked, and seen by any statement that begins later.
 * The second is why one pass is not enough: F may be parked behind P, itself only parked, while this pass is under way
 * with a snapshot that shows F as ready. So passes are made until one finds nothing to wake. In the snapshot of that
 * one, no event is parked without a held one before it; whatever is parked later is behind a chain of waiting events
 * that begins with a held one, and is woken by whoever resolves that. To wake an event needlessly is harmless: the
 * next claim finds it blocked and `defer` parks it again.
 *
 * It asks for all keys rather than for the ones just freed: so it also wakes what an operator left behind whose
 * process was killed between freeing a key and getting here. The passes are limited because an event emitted by hand
 * with available_at 'infinity' holds its key without being held, and its followers would be woken and parked again.
 */
export async function wake(db: Executor, schema: string): Promise<number> {
  let woken = 0;
  for (let pass = 1; pass <= passesMax; pass++) {
    const count = await wakeOnce(db, schema);
    woken += count;
    if (count === 0) break;
  }
  return woken;
}

async function wakeOnce(db: Executor, schema: string): Promise<number> {
  let woken = 0;
  for (let after: string | undefined = lowestKey; after !== undefined; ) {
    const keys: ParkedKey[] = await readJson<ParkedKey>(db, findParkedSql(schema), [after, String(keysMax)]);
    for (const key of keys) woken += await wakeKey(db, schema, key);
    after = keys.length < keysMax ? undefined : keys.at(-1)?.key;
  }
  return woken;
}

interface ParkedKey {
  key: string;
  before: string | null;
}

/** In chunks, from one seq to the next: to start from the key's first row each time would be quadratic. */
async function wakeKey(db: Executor, schema: string, { key, before }: ParkedKey): Promise<number> {
  let woken = 0;
  for (let after: string | null = '0'; after !== null; ) {
    const values: string[] = [key, after, before ?? endOfLog, String(rowsMax)];
    const [chunk] = await readJson<{ count: number; reached: string | null }>(db, wakeSql(schema), values);
    woken += chunk?.count ?? 0;
    after = chunk?.count === rowsMax ? chunk.reached : null;
  }
  return woken;
}
