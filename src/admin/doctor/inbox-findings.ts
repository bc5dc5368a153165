import { duration } from '../../format.ts';
import type { InboxFacts } from '../../outbox/examining/examine-inbox.ts';
import type { MaintenanceTaskInfo } from '../../outbox/operating/list-maintenance.ts';
import { keepMsDefault } from '../../retention.ts';
import type { CheckFinding } from './finding.ts';
import { note, ok, warning } from './finding.ts';

/**
 * Compares how long the inbox remembers with how long events can be replayed, by the last runs of maintenance. `undefined`: the schema
 * has no outbox.
 */
export function inboxFindings(
  { oldestMs }: Pick<InboxFacts, 'oldestMs'>,
  tasks: readonly MaintenanceTaskInfo[] | undefined,
): CheckFinding[] {
  if (oldestMs === null) return [ok('the inbox is empty')];
  const keepMsOf = (name: string) => tasks?.find(({ task }) => task === name)?.keepMs;
  const keepProcessedMs = keepMsOf('processed');
  const keepEventsMs = keepMsOf('prune') ?? keepMsOf('drop') ?? 0;
  if (keepProcessedMs !== undefined && keepProcessedMs < keepEventsMs) {
    return [
      warning(
        `consumers remember processed events for ${lasting(keepProcessedMs)}, but events can be replayed for ${lasting(keepEventsMs)}`,
        `An event that is delivered again after ${lasting(keepProcessedMs)} is processed again.`,
        'set maintenance.keepProcessedMs of every relay to more than keepEventsMs',
      ),
    ];
  }
  if (keepProcessedMs === undefined && oldestMs > keepMsDefault) {
    return [
      note(
        `the oldest record of the inbox is ${duration(oldestMs)} old, and no relay removes old records`,
        'The table grows with each processed event.',
        'call inbox.prune() regularly, with an age longer than events can be replayed and redelivered',
      ),
    ];
  }
  return [ok(`the oldest record of the inbox is ${duration(Math.max(0, oldestMs))} old`)];
}

function lasting(ms: number): string {
  return ms === Number.POSITIVE_INFINITY ? 'ever' : duration(ms);
}
