import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const readCircuitsSql = perSchema(
  (s) => `
select c.destination, c.paused_at is not null as paused, c.state = 'open' as open, c.error, c.probes,
       c.state = 'open' and c.paused_at is null and c.probe_at <= now() as "probeDue",
       not exists (select from ${s}.outbox_relays r
                    where r.ended_at is null and c.destination = any (r.targets)) as abandoned,
       coalesce((select true from ${s}.outbox_shelf h where h.destination = c.destination
                  order by h.seq limit 1), false) as "hasShelved"
  from ${s}.outbox_destinations c`,
);

/** Destination state that all relays share. */
export interface Circuit {
  destination: string;
  paused: boolean;
  open: boolean;
  error: string | null;
  probes: number;
  probeDue: boolean;
  /** Whether no live relay has this destination. */
  abandoned: boolean;
  /** Whether events wait for it on the shelf. */
  hasShelved: boolean;
}

export async function readCircuits(db: Executor, schema: string): Promise<Circuit[]> {
  const { rows } = await db.query(readCircuitsSql(schema), []);
  return rows as unknown as Circuit[];
}
