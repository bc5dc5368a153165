import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const registerSql = perSchema(
  (s) => `
insert into ${s}.outbox_destinations (destination) select unnest($1::text[])
on conflict (destination) do nothing`,
);

/** Registers destinations, so that they can be listed, paused and probed. */
export async function registerDestinations(db: Executor, schema: string, names: readonly string[]): Promise<void> {
  await db.query(registerSql(schema), [names]);
}
