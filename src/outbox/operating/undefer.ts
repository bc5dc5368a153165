import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';

const waits = `q.claimed_by is null and not q.blocking and q.available_at > now() and q.available_at < 'infinity'`;

// The keys of the given events, wherever these are by now: a call that was killed before it could undefer is made good by
// the next one for the same event.
const findDeferredSql = perSchema(
  (s) => `
select json_build_object('key', g.key::text, 'after', g.seq::text)::text as json
  from (select k.key, min(k.seq) as seq from (
          select q.key, q.seq from ${s}.outbox_queue q where q.seq = any ($1::text::bigint[])
          union all
          select d.key, d.seq from ${s}.outbox_dead_letters d where d.seq = any ($1::text::bigint[])
          union all
          select ${s}.key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key), e.seq from ${s}.outbox_events e
           where e.seq = any ($1::text::bigint[])
        ) k where k.key is not null group by k.key) g
 where exists (select from ${s}.outbox_queue q where q.key = g.key and q.seq > g.seq and ${waits})`,
);

/** See migrations/routines/undefer.sql for the contract and the rationale. */
const undeferSql = perSchema(
  (s) => `
select ${s}.undefer($1::text::bigint, $2::text::bigint, nullif($3::text, '')::timestamptz, $4::text::integer)::text as json`,
);

const rowsMax = 1_000;
const passesMax = 20;

/**
 * Makes the events claimable that `defer` put behind the given ones, which were released or cancelled: their due time is that
 * of the event that they waited for. To be called after that has committed.
 *
 * Passes are made until one finds nothing, for the reason that `unpark` gives: while a pass is under way, `defer` may put
 * one more event behind one that the pass has not reached yet. To undefer needlessly is harmless: the next claim finds the
 * event blocked and defers it again.
 */
export async function undefer(db: Executor, schema: string, seqs: readonly string[]): Promise<void> {
  const keys = await readJson<DeferredKey>(db, findDeferredSql(schema), [arrayText(seqs)]);
  for (const key of keys) {
    for (let pass = 1; pass <= passesMax; pass++) if ((await undeferKey(db, schema, key)) === 0) break;
  }
}

interface DeferredKey {
  key: string;
  /** The first of the given events. */
  after: string;
}

interface UndeferredChunk {
  seen: number;
  changed: number;
  reached: string | null;
  /** The earliest time of an event seen so far that was emitted with a delay; empty for none. */
  wall: string;
}

/** In chunks, from one seq to the next. Returns how many events it changed. */
async function undeferKey(db: Executor, schema: string, { key, after: front }: DeferredKey): Promise<number> {
  let changed = 0;
  let wall = '';
  for (let after: string | null = front; after !== null; ) {
    const values: string[] = [key, after, wall, String(rowsMax)];
    const [chunk] = (await readJson<UndeferredChunk>(db, undeferSql(schema), values)) as [UndeferredChunk];
    changed += chunk.changed;
    wall = chunk.wall;
    after = chunk.seen === rowsMax ? chunk.reached : null;
  }
  return changed;
}
