import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const closeCircuitSql = perSchema(
  (s) => `
update ${s}.outbox_destinations c
   set state = 'closed', probe_at = null, changed_at = now(), unshelved_at = now()
 where c.destination = $1::text and c.state = 'open'`,
);

/**
 * A probe succeeded. Until the destination has processed an event it is not known to be up. `probes` stays, so that a broker
 * that passes probes but accepts no events is probed less and less often; the error also stays visible to operators.
 */
export async function closeCircuit(db: Executor, schema: string, destination: string): Promise<void> {
  await db.query(closeCircuitSql(schema), [destination]);
}

const provenSql = perSchema(
  (s) => `update ${s}.outbox_destinations c set probes = 0, opened_at = null, error = null
 where c.destination = $1::text and c.state = 'closed' and c.probes > 0`,
);

/** Records that the destination has processed an event: it is up. */
export async function circuitProven(db: Executor, schema: string, destination: string): Promise<void> {
  await db.query(provenSql(schema), [destination]);
}
