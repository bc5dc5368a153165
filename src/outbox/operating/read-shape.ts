import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const readShapeSql = perSchema(
  (s) => `
select json_build_object(
  'relaysAlive', (select count(*) from ${s}.outbox_relays r where r.ended_at is null and r.lease_until >= now()),
  'partitions', (select count(*) from ${s}.outbox_partitions p where p.dropped_at is null)
)::text as json`,
);

/** What an outbox consists of at the moment, apart from its events. */
export interface OutboxShape {
  relaysAlive: number;
  /** 0 if the log is not partitioned. */
  partitions: number;
}

export async function readShape(db: Executor, schema: string): Promise<OutboxShape> {
  const [shape] = await readJson<OutboxShape>(db, readShapeSql(schema));
  return shape as OutboxShape;
}
