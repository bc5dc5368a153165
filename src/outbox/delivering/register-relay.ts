import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { defaultQueue } from '../../queue-name.ts';

const registerRelaySql = perSchema(
  (s) => `
insert into ${s}.outbox_relays (name, host, pid, lease_until, version, targets, fingerprint, queues, host_id, process_id)
values ($1::text, $2::text, $3::integer, now() + $4::double precision * interval '1 millisecond',
        $5::text, $6::text[], $7::text, $8::text[], $9::text, $10::text)
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
  /** Identifies the boot and the pid namespace of `pid`. */
  hostId?: string | undefined;
  /** Identifies the process among those that have had its pid. */
  processId?: string | undefined;
}

/** Registers a relay. Its token fences: new every time, never issued twice. */
export async function registerRelay(
  db: Executor,
  schema: string,
  relay: RelayIdentity & { leaseMs: number },
): Promise<string> {
  const { name, host, pid, leaseMs, version = null, targets = [], fingerprint = null, queues = [defaultQueue] } = relay;
  const { hostId = null, processId = null } = relay;
  const values = [name, host, pid, leaseMs, version, targets, fingerprint, queues, hostId, processId];
  const { rows } = await db.query(registerRelaySql(schema), values);
  return (rows[0] as { token: string }).token;
}
