import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { defaultQueue } from '../../queue-name.ts';

const registerSql = perSchema(
  (s) => `
insert into ${s}.outbox_relays (name, host, pid, lease_until, version, targets, fingerprint, queues)
values ($1::text, $2::text, $3::integer, now() + $4::double precision * interval '1 millisecond',
        $5::text, $6::text[], $7::text, $8::text[])
returning token`,
);

/** What a relay registers about itself. Contains no secrets. */
export interface RelayIdentity {
  name: string;
  host: string;
  pid: number;
  /** Version of the package. */
  version?: string;
  /** What the relay can deliver to: destinations by name, handlers as `type:name`. */
  targets?: readonly string[];
  /** Hash of its configuration. */
  fingerprint?: string;
  /** The queues that it works. Default: only `default`. */
  queues?: readonly string[];
}

/** Registers a relay. Its token fences: new every time, never issued twice. */
export async function register(
  db: Executor,
  schema: string,
  relay: RelayIdentity & { leaseMs: number },
): Promise<string> {
  const { name, host, pid, leaseMs, version = null, targets = [], fingerprint = null, queues = [defaultQueue] } = relay;
  const values = [name, host, pid, leaseMs, version, targets, fingerprint, queues];
  const { rows } = await db.query(registerSql(schema), values);
  return (rows[0] as { token: string }).token;
}

const renewSql = perSchema(
  (s) => `
update ${s}.outbox_relays
   set heartbeat_at = now(), lease_until = now() + $2::double precision * interval '1 millisecond', stats = $3::text::jsonb
 where token = $1::bigint and ended_at is null
returning token`,
);

/** Extends the lease on everything the relay owns, in one row. Returns false if the relay was declared lost. */
export async function renew(
  db: Executor,
  schema: string,
  token: string,
  leaseMs: number,
  stats: unknown,
): Promise<boolean> {
  const { rows } = await db.query(renewSql(schema), [token, leaseMs, JSON.stringify(stats)]);
  return rows.length === 1;
}

// Declaring a relay lost updates its row, instead of comparing times in every claim: the row lock decides between a late
// heartbeat and the rescuer, so never both win. No relay is declared lost while the server is younger than a lease: no relay
// could renew while it was down, and most are about to. A start time in the future means that the clock was set back since;
// then only the caller can know that the server has been up for a lease. No relay is declared lost either when the clock is
// later than the caller can explain: it was set forward, and every lease looks expired.
const reapSql = perSchema(
  (s) => `
update ${s}.outbox_relays set ended_at = now(), ended_as = 'lost'
 where ended_at is null and token <> $1::bigint
   and (pg_postmaster_start_time() < now() - $2::double precision * interval '1 millisecond'
        or $4::boolean and pg_postmaster_start_time() > now())
   and date_part('epoch', now()) * 1000 <= $5::double precision
   and lease_until < now() - $3::double precision * interval '1 millisecond'
returning token, name, host, pid`,
);

export interface LostRelay {
  token: string;
  name: string;
  host: string;
  pid: number;
}

export interface ReapOptions {
  ownToken: string;
  /** No relay is declared lost while the server is younger than this. */
  serverUpMs: number;
  /** How long ago a lease must have expired. */
  overdueMs: number;
  /** Whether the caller has been connected to the server for `serverUpMs`. Default `false`. */
  inTouch?: boolean;
  /** No relay is declared lost if the database's clock, in milliseconds, is later than this. Default: no limit. */
  clockMsMax?: number;
}

/** Declares relays lost whose lease expired `overdueMs` ago. Their events are free for the next claim. */
export async function reap(
  db: Executor,
  schema: string,
  { ownToken, serverUpMs, overdueMs, inTouch = false, clockMsMax = Number.MAX_SAFE_INTEGER }: ReapOptions,
): Promise<LostRelay[]> {
  const { rows } = await db.query(reapSql(schema), [ownToken, serverUpMs, overdueMs, inTouch, clockMsMax]);
  return rows as unknown as LostRelay[];
}

const endSql = perSchema(
  (s) =>
    `update ${s}.outbox_relays set ended_at = now(), ended_as = 'stopped' where token = $1::bigint and ended_at is null`,
);

/** Deregisters a relay. Events it still owns are free immediately. */
export async function end(db: Executor, schema: string, token: string): Promise<void> {
  await db.query(endSql(schema), [token]);
}
