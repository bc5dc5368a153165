import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { optional, readJson, toDate } from '../read-json.ts';

// Counts stop at the cap: a shelf may contain the events of days.
const listDestinationsSql = perSchema(
  (s) => `
select json_build_object(
  'name', c.destination,
  -- A destination that passes its probes but has accepted none of its waiting events is not known to be up.
  'down', c.state = 'open' or (c.probes > 0 and exists (
     select from ${s}.outbox_shelf h where h.destination = c.destination)),
  'pausedAt', c.paused_at, 'reason', c.reason,
  'openedAt', c.opened_at, 'error', c.error, 'probeAt', c.probe_at,
  'waiting', (select count(*) from (
     select from ${s}.outbox_shelf h where h.destination = c.destination limit $1::text::integer) h),
  'relays', (select count(*) from ${s}.outbox_relays r where r.ended_at is null and c.destination = any (r.targets)),
  'oldestWaitingAt', (
     select e.created_at from (
       select h.seq from ${s}.outbox_shelf h where h.destination = c.destination order by h.seq limit 1) h
     join ${s}.outbox_events e on e.seq = h.seq)
)::text as json
  from ${s}.outbox_destinations c order by c.destination`,
);

/** A destination as operators see it. */
export interface DestinationInfo {
  name: string;
  /** `up`: events are sent. `down`: unreachable, and probed. `paused`: by an operator. */
  state: 'up' | 'down' | 'paused';
  /** Events that wait for it, counted up to 100,000. */
  waiting: number;
  /** Live relays that have it. Without any, its events wait until one starts, or until the destination is forgotten. */
  relays: number;
  /** When the oldest event that waits for it was emitted. */
  oldestWaitingAt?: Date;
  /** Since when it is down. */
  downSince?: Date;
  /** Why it is down, as the broker reported it. */
  error?: string;
  /** When it will be probed next. */
  probeAt?: Date;
  pausedAt?: Date;
  /** Why it was paused. */
  reason?: string;
}

interface DestinationRow {
  name: string;
  down: boolean;
  waiting: number;
  relays: number;
  oldestWaitingAt: string | null;
  openedAt: string | null;
  error: string | null;
  probeAt: string | null;
  pausedAt: string | null;
  reason: string | null;
}

const cap = 100_000;

/** Every registered destination, by name. */
export async function listDestinations(db: Executor, schema: string): Promise<DestinationInfo[]> {
  const rows = await readJson<DestinationRow>(db, listDestinationsSql(schema), [String(cap)]);
  return rows.map((row) => ({
    name: row.name,
    state: row.pausedAt !== null ? 'paused' : row.down ? 'down' : 'up',
    waiting: row.waiting,
    relays: row.relays,
    ...optional('oldestWaitingAt', row.oldestWaitingAt, toDate),
    ...(row.down && optional('downSince', row.openedAt, toDate)),
    ...(row.down && optional('error', row.error, (error) => error)),
    ...optional('probeAt', row.probeAt, toDate),
    ...optional('pausedAt', row.pausedAt, toDate),
    ...optional('reason', row.reason, (reason) => reason),
  }));
}
