import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { defaultQueue } from '../../queue-name.ts';
import { optional, readJson, toDate } from '../read-json.ts';

// Counts stop at the cap: a paused queue may contain the events of days.
const listQueuesSql = perSchema(
  (s) => `
with name as materialized (
  select '${defaultQueue}' collate "C" as queue
  union select n.queue from ${s}.queue_names() as n(queue)
  union select t.queue from ${s}.outbox_queue_states t where t.paused_at is not null
  union select unnest(r.queues) from ${s}.outbox_relays r where r.ended_at is null
)
select json_build_object(
  'name', n.queue, 'pausedAt', t.paused_at, 'reason', t.reason,
  'relays', (select count(*) from ${s}.outbox_relays r where r.ended_at is null and n.queue = any (r.queues)),
  'counts', ${s}.count_queue(n.queue, $1::text::integer), 'readAt', now()
)::text as json
  from name n left join ${s}.outbox_queue_states t on t.queue = n.queue order by n.queue`,
);

/** A named queue as operators see it. Each figure is counted up to 100,000. */
export interface QueueInfo {
  name: string;
  /** `paused`: by an operator; relays claim nothing from it. */
  state: 'active' | 'paused';
  /** Events that are due and not claimed, also those that wait for an earlier event of their aggregate. */
  ready: number;
  /** Events that a relay has claimed. */
  inFlight: number;
  /** Events that are not due: delayed, in backoff, or behind such an event. */
  waiting: number;
  /** Of the waiting events, those in backoff after a failed attempt. */
  retrying: number;
  /** Since when the oldest ready event has been due, and for how long by the clock of the database. */
  oldestReadyAt?: Date;
  oldestReadyMs?: number;
  /** Live relays that work it. Without any, its events wait. */
  relays: number;
  pausedAt?: Date;
  /** Why it was paused. */
  reason?: string;
}

interface QueueRow {
  name: string;
  pausedAt: string | null;
  reason: string | null;
  relays: number;
  counts: { ready: number; inFlight: number; waiting: number; retrying: number; oldestReadyAt: string | null };
  readAt: string;
}

const cap = 100_000;

/** Every queue that has events, is worked by a live relay or is paused, and `default`, by name. */
export async function listQueues(db: Executor, schema: string): Promise<QueueInfo[]> {
  const rows = await readJson<QueueRow>(db, listQueuesSql(schema), [String(cap)]);
  return rows.map(({ name, pausedAt, reason, relays, readAt, counts: { oldestReadyAt, ...counts } }) => ({
    name,
    state: pausedAt === null ? 'active' : 'paused',
    ...counts,
    ...optional('oldestReadyAt', oldestReadyAt, toDate),
    ...optional('oldestReadyMs', oldestReadyAt, (at) => Math.max(0, toDate(readAt).getTime() - toDate(at).getTime())),
    relays,
    ...optional('pausedAt', pausedAt, toDate),
    ...optional('reason', pausedAt === null ? null : reason, (text) => text),
  }));
}
