import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { optional, readJson, toDate } from '../read-json.ts';

const relaysMax = 1_000;

const listRelaysSql = perSchema(
  (s) => `
select json_build_object(
  'token', r.token::text, 'name', r.name, 'host', r.host, 'pid', r.pid, 'startedAt', r.started_at,
  'heartbeatAt', r.heartbeat_at, 'leaseUntil', r.lease_until, 'endedAt', r.ended_at, 'stats', r.stats,
  'version', r.version, 'targets', r.targets, 'fingerprint', r.fingerprint, 'queues', r.queues,
  'sessionLock', r.session_lock,
  'state', coalesce(r.ended_as, case when r.lease_until < now() then 'overdue' else 'alive' end)
)::text as json
  from ${s}.outbox_relays r
 order by (r.ended_at is null) desc, r.token desc limit ${relaysMax}`,
);

/** A registered relay. */
export interface RelayInfo {
  /** Its fencing token: new each time it registers. */
  token: string;
  name: string;
  host: string;
  pid: number;
  /**
   * `alive`: its lease is valid. `overdue`: its lease expired and no other relay has taken over yet. `stopped`: it stopped
   * normally. `lost`: it was declared lost, and its events were taken over.
   */
  state: 'alive' | 'overdue' | 'stopped' | 'lost';
  startedAt: Date;
  heartbeatAt: Date;
  leaseUntil: Date;
  endedAt?: Date;
  /** What it reported with its last heartbeat: counters since it was created, and its buffer. */
  stats: Record<string, unknown>;
  /** Version of the package that it runs. */
  version?: string;
  /** What it can deliver to: destinations by name, handlers as `type:name`. */
  targets: string[];
  /** A hash of its targets, route, retry and poison settings. */
  fingerprint?: string;
  /** The queues that it works. */
  queues: string[];
  /**
   * Whether it holds its session lock, so that a crash is noticed within seconds. If not, as behind a transaction pooler, a crash is
   * noticed when its lease ends.
   */
  sessionLock: boolean;
}

interface RelayRow
  extends Omit<RelayInfo, 'startedAt' | 'heartbeatAt' | 'leaseUntil' | 'endedAt' | 'version' | 'fingerprint'> {
  version: string | null;
  fingerprint: string | null;
  startedAt: string;
  heartbeatAt: string;
  leaseUntil: string;
  endedAt: string | null;
}

/** Running relays, then those that ended in the last days, newest first. */
export async function listRelays(db: Executor, schema: string): Promise<RelayInfo[]> {
  const rows = await readJson<RelayRow>(db, listRelaysSql(schema));
  return rows.map(({ startedAt, heartbeatAt, leaseUntil, endedAt, version, fingerprint, ...same }) => ({
    ...same,
    startedAt: toDate(startedAt),
    heartbeatAt: toDate(heartbeatAt),
    leaseUntil: toDate(leaseUntil),
    ...optional('endedAt', endedAt, toDate),
    ...optional('version', version, String),
    ...optional('fingerprint', fingerprint, String),
  }));
}
