import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

// A binary search along the primary key: at most about sixty lookups, however long the log is.
const findSeqAtTimeSql = perSchema(
  (s) => `
with recursive search(low, high) as (
  select min(seq), max(seq) from ${s}.outbox_events
  union all
  select case when p.created_at < $1::text::timestamptz then p.seq + 1 else low end,
         case when p.created_at < $1::text::timestamptz then high else low + (high - low) / 2 - 1 end
    from search left join lateral (
      select e.seq, e.created_at from ${s}.outbox_events e
       where e.seq >= low + (high - low) / 2 and e.seq <= high order by e.seq limit 1
    ) p on true
   where low <= high
)
select to_json(low::text)::text as json from search where low > high`,
);

/**
 * Where in the log a time begins if `created_at` grows with seq: the first seq that is not older. `undefined` if the log is
 * empty.
 *
 * A list by time is ordered by seq and stops when its page is full, so the planner walks along the primary key; for a week
 * long ago it would read everything since then. With a bound it starts where the week does. This is only a guess: imported
 * history has its own times. `findSeqRange` turns it into a correct bound.
 */
export async function findSeqAtTime(db: Executor, schema: string, time: string): Promise<string | undefined> {
  const [seq] = await readJson<string>(db, findSeqAtTimeSql(schema), [time]);
  return seq;
}
