import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const examineDutySql = perSchema(
  (s) => `
select to_json(exists (
  select from ${s}.outbox_leadership l join ${s}.outbox_relays r on r.token = l.owner
   where l.name = $1::text and l.lease_until > now() and r.ended_at is null
))::text as json`,
);

/** Whether a live relay has this duty now. */
export async function examineDuty(db: Executor, schema: string, duty: 'metrics'): Promise<boolean> {
  const [held] = await readJson<boolean>(db, examineDutySql(schema), [duty]);
  return held === true;
}
