import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { storeText } from '../../database/storable-text.ts';

/** The delay before a probe: doubles with each failed one up to a limit, minus up to half of it at random. */
const backoff = (baseMs: string, maxMs: string) =>
  `least(${maxMs}, ${baseMs} * 2 ^ least(c.probes, 20)) * (0.5 + random() / 2) * interval '1 millisecond'`;

const registerSql = perSchema(
  (s) => `
insert into ${s}.outbox_destinations (destination) select unnest($1::text[])
on conflict (destination) do nothing`,
);

/** Registers destinations, so that they can be listed, paused and probed. */
export async function registerDestinations(db: Executor, schema: string, names: readonly string[]): Promise<void> {
  await db.query(registerSql(schema), [names]);
}

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

const openCircuitSql = perSchema(
  (s) => `
update ${s}.outbox_destinations c
   set state = 'open', opened_at = coalesce(c.opened_at, now()), error = $2::text, changed_at = now(), probes = c.probes + 1,
       probe_at = now() + greatest($5::double precision * interval '1 millisecond',
                                   ${backoff('$3::double precision', '$4::double precision')})
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

// Moving the time of the next probe makes this relay the only one that probes. If it dies, another relay probes after that
// time.
const takeProbeSql = perSchema(
  (s) => `
update ${s}.outbox_destinations c set probe_at = now() + $2::double precision * interval '1 millisecond', changed_at = now()
 where c.destination = $1::text and c.state = 'open' and c.paused_at is null and c.probe_at <= now()
returning c.destination`,
);

/** Returns true if this relay is to probe. No other relay probes for `timeoutMs`. */
export async function takeProbe(
  db: Executor,
  schema: string,
  destination: string,
  timeoutMs: number,
): Promise<boolean> {
  const { rows } = await db.query(takeProbeSql(schema), [destination, timeoutMs]);
  return rows.length === 1;
}

const probeFailedSql = perSchema(
  (s) => `
update ${s}.outbox_destinations c
   set error = $2::text, probes = c.probes + 1, changed_at = now(),
       probe_at = now() + ${backoff('$3::double precision', '$4::double precision')}
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
