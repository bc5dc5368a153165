import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';
import type { DeadLetterSelection } from './conditions.ts';
import { conditionsGoHere, whereSelected } from './conditions.ts';

const countDeadLettersSql = perSchema(
  (s) => `
select json_build_object('count', count(*), 'blocking', count(*) filter (where c.blocking),
                         'partlyDelivered', count(*) filter (where cardinality(c.done) > 0))::text as json
  from (
    select d.blocking, d.done from ${s}.outbox_dead_letters d
      left join lateral (select l.* from ${s}.outbox_events l where l.seq = d.seq limit 1) e on true
     where true ${conditionsGoHere} limit $1::text::integer
  ) c`,
);

export interface DeadLetterCount {
  count: number;
  /** How many of them block their aggregate. */
  blocking: number;
  /** How many of them some of their targets already have. */
  partlyDelivered: number;
}

/** Counts the dead letters that an operation would change, up to `limit`. */
export async function countDeadLetters(
  db: Executor,
  schema: string,
  selection: DeadLetterSelection,
  limit: number,
): Promise<DeadLetterCount> {
  const conditions = whereSelected(selection, { after: '0', limit });
  const [count] = await readJson<DeadLetterCount>(db, conditions.into(countDeadLettersSql(schema)), conditions.values);
  return count as DeadLetterCount;
}
