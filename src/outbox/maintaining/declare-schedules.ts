import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { storeText } from '../../database/storable-text.ts';

const declareSql = perSchema(
  (s) => `select ${s}.declare_schedules($1::text::bigint, $2::text, $3::text::jsonb)::text as json`,
);

export interface DeclaredSchedule {
  name: string;
  cron: string;
  timeZone: string;
}

/** Records which schedules a relay has. See migrations/routines/declare_schedules.sql. */
export async function declareSchedules(
  db: Executor,
  schema: string,
  relay: { token: string; name: string },
  schedules: readonly DeclaredSchedule[],
): Promise<void> {
  const given = schedules.map(({ name, cron, timeZone }) => ({ name, cron, time_zone: timeZone }));
  await storeText(relay.name, (name) => db.query(declareSql(schema), [relay.token, name, JSON.stringify(given)]));
}
