import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { storeText } from '../../database/storable-text.ts';
import type { ProbePace } from './open-circuit.ts';
import { probeBackoff } from './open-circuit.ts';

// Moving the time of the next probe makes this relay the only one that probes. If it dies, another relay probes after that
// time.
const takeCircuitProbeSql = perSchema(
  (s) => `
update ${s}.outbox_destinations c set probe_at = now() + $2::double precision * interval '1 millisecond', changed_at = now()
 where c.destination = $1::text and c.state = 'open' and c.paused_at is null and c.probe_at <= now()
returning c.destination`,
);

/** Returns true if this relay is to probe. No other relay probes for `timeoutMs`. */
export async function takeCircuitProbe(
  db: Executor,
  schema: string,
  destination: string,
  timeoutMs: number,
): Promise<boolean> {
  const { rows } = await db.query(takeCircuitProbeSql(schema), [destination, timeoutMs]);
  return rows.length === 1;
}

const probeFailedSql = perSchema(
  (s) => `
update ${s}.outbox_destinations c
   set error = $2::text, probes = c.probes + 1, changed_at = now(),
       probe_at = now() + ${probeBackoff('$3::double precision', '$4::double precision')}
 where c.destination = $1::text and c.state = 'open'`,
);

export async function probeFailed(
  db: Executor,
  schema: string,
  { destination, error }: { destination: string; error: string },
  { probeDelayMs, probeDelayMsMax }: ProbePace,
): Promise<void> {
  await storeText(error, (text) =>
    db.query(probeFailedSql(schema), [destination, text, probeDelayMs, probeDelayMsMax]),
  );
}
