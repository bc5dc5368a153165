import type { Executor } from '../../database/executor.ts';
import type { GaugeName } from '../../metrics/definitions.ts';
import type { GaugeSample } from '../../metrics/metrics.ts';
import type { Labels } from '../../metrics/series.ts';
import { examineSlots } from '../../outbox/examining/examine-slots.ts';
import { count } from '../../outbox/operating/count.ts';
import { listDestinations } from '../../outbox/operating/list-destinations.ts';
import { listQueues } from '../../outbox/operating/list-queues.ts';
import { readShape } from '../../outbox/operating/read-shape.ts';

/**
 * Reads the gauges that describe the outbox. Like the figures of `postcommit status`, they are counted up to 100,000 rows of each
 * table, and estimated above, so that the cost has a limit. `outbox_events_pending` includes events in flight, which `status`
 * counts on their own. Nothing reads delivered events.
 */
export async function sampleOutbox(db: Executor, schema: string): Promise<GaugeSample[]> {
  const samples: GaugeSample[] = [];
  const set = (name: GaugeName, value: number, labels: Labels = {}) => void samples.push({ name, labels, value });

  const counts = await count(db, schema);
  set('outbox_events_pending', counts.pending + counts.processing);
  set('outbox_events_in_flight', counts.processing);
  set('outbox_events_shelved', counts.shelved);
  set('outbox_dead_letters', counts.failed);
  set('outbox_blocked_aggregates', counts.blocked);
  set('outbox_oldest_event_age_seconds', (counts.oldestPendingMs ?? 0) / 1_000);

  let tasks = 0;
  for (const { name: queue, state, ready, inFlight, waiting, retrying, relays, oldestReadyMs } of await listQueues(
    db,
    schema,
  )) {
    tasks += ready + retrying;
    set('outbox_queue_events', ready, { queue, state: 'ready' });
    set('outbox_queue_events', waiting, { queue, state: 'waiting' });
    set('outbox_queue_events', inFlight, { queue, state: 'in_flight' });
    set('outbox_queue_oldest_age_seconds', (oldestReadyMs ?? 0) / 1_000, { queue });
    set('outbox_queue_relays', relays, { queue });
    set('outbox_queue_paused', Number(state === 'paused'), { queue });
  }
  set('outbox_tasks_pending', tasks);

  for (const { name: destination, state, waiting } of await listDestinations(db, schema)) {
    set('outbox_destination_down', Number(state === 'down'), { destination });
    set('outbox_destination_paused', Number(state === 'paused'), { destination });
    set('outbox_destination_waiting', waiting, { destination });
  }

  const { relaysAlive, partitions } = await readShape(db, schema);
  set('outbox_relays_alive', relaysAlive);
  set('outbox_partitions', partitions);

  for (const { name: slot, active, retainedBytes, lagBytes } of await examineSlots(db)) {
    set('outbox_slot_active', Number(active), { slot });
    if (retainedBytes !== null) set('outbox_slot_retained_bytes', retainedBytes, { slot });
    if (lagBytes !== null) set('outbox_slot_lag_bytes', lagBytes, { slot });
  }
  return samples;
}
