import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson, toDate } from '../read-json.ts';
import { errorGroupOf } from './conditions.ts';

const groupDeadLettersSql = perSchema(
  (s) => `
with recent as materialized (
  select d.seq, d.dead_at, d.reason, d.blocking, d.error from ${s}.outbox_dead_letters d
   where d.discarded_at is null order by d.seq desc limit $1::text::integer
), grouped as materialized (
  select ${errorGroupOf('r.error')} as error_group, count(*) as count, count(*) filter (where r.blocking) as blocking,
         min(r.dead_at) as first_at, max(r.dead_at) as last_at, max(r.seq) as newest, array_agg(distinct r.reason) as reasons
    from recent r group by 1 order by 2 desc, 1 limit $2::text::integer
)
select json_build_object(
  'group', g.error_group, 'count', g.count, 'blocking', g.blocking, 'firstAt', g.first_at, 'lastAt', g.last_at,
  'reasons', g.reasons, 'seq', g.newest::text, 'error', left(d.error, 2000),
  'type', (select e.event_type from ${s}.outbox_events e where e.seq = g.newest)
)::text as json
  from grouped g join ${s}.outbox_dead_letters d on d.seq = g.newest order by g.count desc, g.error_group`,
);

/** Dead letters with the same error, apart from numbers and ids in it. */
export interface DeadLetterGroup {
  /** The first line of the error, with `#` for each number and id. Pass it as `errorGroup` to select the group. */
  group: string;
  count: number;
  /** How many of them block their aggregate. */
  blocking: number;
  firstAt: Date;
  lastAt: Date;
  reasons: string[];
  /** The newest one: its seq, its event type, and its error, up to 2,000 characters. */
  seq: string;
  type: string | null;
  error: string;
}

/** Reads the newest `lettersMax` dead letters that are not discarded. Returns at most `groupsMax` groups, largest first. */
export async function groupDeadLetters(
  db: Executor,
  schema: string,
  { lettersMax, groupsMax }: { lettersMax: number; groupsMax: number },
): Promise<DeadLetterGroup[]> {
  const rows = await readJson<Omit<DeadLetterGroup, 'firstAt' | 'lastAt'> & { firstAt: string; lastAt: string }>(
    db,
    groupDeadLettersSql(schema),
    [String(lettersMax), String(groupsMax)],
  );
  return rows.map((row) => ({ ...row, firstAt: toDate(row.firstAt), lastAt: toDate(row.lastAt) }));
}
