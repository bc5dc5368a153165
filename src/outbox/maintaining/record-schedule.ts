import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { storeText } from '../../database/storable-text.ts';

const recordNextTickSql = perSchema(
  (s) => `
update ${s}.outbox_schedules set next_tick_at = $2::text::timestamptz
 where name = $1::text and date_trunc('milliseconds', ticked_to) = $3::text::timestamptz`,
);

/** Records when the next tick is, for operators. Has no effect if the schedule has moved on meanwhile. */
export async function recordNextTick(
  db: Executor,
  schema: string,
  { schedule, tickedToMs, nextMs }: { schedule: string; tickedToMs: number; nextMs: number },
): Promise<void> {
  const values = [schedule, new Date(nextMs).toISOString(), new Date(tickedToMs).toISOString()];
  await db.query(recordNextTickSql(schema), values);
}

const recordFailureSql = perSchema(
  (s) => `
update ${s}.outbox_schedules set failures = least(failures, 1000000) + 1, error = $2::text where name = $1::text`,
);

/** Records why a schedule could not emit, for operators. */
export async function recordScheduleFailure(db: Executor, schema: string, name: string, error: string): Promise<void> {
  await storeText(error, (text) => db.query(recordFailureSql(schema), [name, text]));
}
