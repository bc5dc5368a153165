import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { storeText } from '../../database/storable-text.ts';

/** The delay before a probe: doubles with each failed one up to a limit, minus up to half of it at random. */
export const probeBackoff = (baseMs: string, maxMs: string) =>
  `least(${maxMs}, ${baseMs} * 2 ^ least(c.probes, 20)) * (0.5 + random() / 2) * interval '1 millisecond'`;

const openCircuitSql = perSchema(
  (s) => `
update ${s}.outbox_destinations c
   set state = 'open', opened_at = coalesce(c.opened_at, now()), error = $2::text, changed_at = now(), probes = c.probes + 1,
       probe_at = now() + greatest($5::double precision * interval '1 millisecond',
                                   ${probeBackoff('$3::double precision', '$4::double precision')})
 where c.destination = $1::text and c.state = 'closed'`,
);

export interface ProbePace {
  probeDelayMs: number;
  probeDelayMsMax: number;
}

/** Opens the circuit: the destination is down, and no relay sends to it until a probe has succeeded. */
export async function openCircuit(
  db: Executor,
  schema: string,
  { destination, error, retryAfterMs }: { destination: string; error: string; retryAfterMs: number },
  { probeDelayMs, probeDelayMsMax }: ProbePace,
): Promise<void> {
  await storeText(error, (text) =>
    db.query(openCircuitSql(schema), [destination, text, probeDelayMs, probeDelayMsMax, retryAfterMs]),
  );
}
