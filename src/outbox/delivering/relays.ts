import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const registerSql = perSchema(
  (s) => `
insert into ${s}.outbox_relays (name, host, pid, lease_until, version, targets, fingerprint)
values ($1::text, $2::text, $3::integer, now() + $4::double precision * interval '1 millisecond',
        $5::text, $6::text[], $7::text)
returning token`,
);

/** What a relay tells of itself. Nothing in it is secret. */
export interface RelayIdentity {
  name: string;
  host: string;
  pid: number;
  /** Version of the package. */
  version?: string;
  /** What it can deliver to: destinations by name, handlers as `type:name`. */
  targets?: readonly string[];
  /** Hash of its configuration. */
  fingerprint?: string;
}

/** Enters a relay into the books. The token is its fence: new every time, never given out twice. */
export async function register(
  db: Executor,
  schema: string,
  relay: RelayIdentity & { leaseMs: number },
): Promise<string> {
  const { name, host, pid, leaseMs, version = null, targets = [], fingerprint = null } = relay;
  const { rows } = await db.query(registerSql(schema), [name, host, pid, leaseMs, version, targets, fingerprint]);
  return (rows[0] as { token: string }).token;
}

const renewSql = perSchema(
  (s) => `
update ${s}.outbox_relays
   set heartbeat_at = now(), lease_until = now() + $2::double precision * interval '1 millisecond', stats = $3::text::jsonb
 where token = $1::bigint and ended_at is null
returning token`,
);

/** Extends the lease of everything the relay holds, in one row. False: the relay was declared lost. */
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

// Declaring a relay lost is a change of its row and not a comparison of times in every claim: the row's lock decides
// between a late heartbeat and the rescuer, so never both win. While the server is younger than a lease no relay is
// declared lost: no relay could renew before it came up, and most are about to. A start in the future says that the clock was
// set back since; then only the caller can know that the server has been up for a lease. Nor is anybody declared lost when
// the clock reads later than the caller can explain: it was set forward, and every lease looks expired.
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
  /** Nobody is declared lost while the server is younger than this. */
  serverUpMs: number;
  /** For how long a lease must have run out. */
  overdueMs: number;
  /** Whether the caller has been in touch with the server for `serverUpMs`. Default `false`. */
  inTouch?: boolean;
  /** Nobody is declared lost if the database's clock, in milliseconds, reads later than this. Default: any time. */
  clockMsMax?: number;
}

/** Declares relays lost whose lease ran out `overdueMs` ago. What they held is free for the next claim. */
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

/** Signs a relay off. Whatever it might still hold is free at once. */
export async function end(db: Executor, schema: string, token: string): Promise<void> {
  await db.query(endSql(schema), [token]);
}
