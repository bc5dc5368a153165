import { duration, quantity } from '../format.ts';
import type { OutboxCounts } from '../outbox/operating/count.ts';
import type { DestinationInfo } from '../outbox/operating/list-destinations.ts';
import type { MissingTarget } from '../outbox/operating/list-missing-targets.ts';
import type { QueueInfo } from '../outbox/operating/list-queues.ts';
import type { RelayInfo } from '../outbox/operating/list-relays.ts';

/** The state of an outbox in one sentence. */
export interface Health {
  level: 'good' | 'attention' | 'bad';
  /** The worst that was found, or that all is well. */
  sentence: string;
  /** Everything that was found, worst first. */
  reasons: string[];
}

interface Facts {
  counts: OutboxCounts;
  relays: readonly RelayInfo[];
  destinations: readonly DestinationInfo[];
  queues: readonly QueueInfo[];
  missingTargets: readonly MissingTarget[];
}

/** Events that wait longer are late, even after a restart of all relays. */
const lateMs = 60_000;
const namesMax = 3;

/** Judges the facts of an overview. */
export function judge({ counts, relays, destinations, queues, missingTargets }: Facts): Health {
  const bad: string[] = [];
  const attention: string[] = [];
  const alive = relays.filter(({ state }) => state === 'alive').length;
  if (alive === 0) {
    const backlog = counts.pending + counts.processing;
    const waiting = backlog > 0 ? `, and ${quantity(backlog, 'event')} ${backlog === 1 ? 'waits' : 'wait'}` : '';
    bad.push(`No relay is running${waiting}.`);
  }
  const down = destinations.filter(({ state, relays: having }) => state === 'down' && having > 0);
  if (down.length > 0) bad.push(`${names(down)} ${down.length === 1 ? 'is' : 'are'} down.`);
  const unworked = queues.filter((queue) => queue.relays === 0 && queue.ready > 0);
  if (alive > 0 && unworked.length > 0) bad.push(`No relay works the queue ${names(unworked)}.`);
  if (alive > 0 && missingTargets.length > 0) {
    bad.push(
      `No relay has ${missingTargets
        .slice(0, namesMax)
        .map(({ target }) => target)
        .join(', ')}.`,
    );
  }
  if (alive > 0 && (counts.oldestPendingMs ?? 0) > lateMs) {
    bad.push(`The oldest event has been due for ${duration(counts.oldestPendingMs ?? 0)}.`);
  }
  if (counts.blocked > 0) {
    const isOne = counts.blocked === 1;
    bad.push(
      `${quantity(counts.blocked, 'aggregate')} ${isOne ? 'is blocked by a dead letter' : 'are blocked by dead letters'}.`,
    );
  }
  if (counts.failed > 0) attention.push(`${quantity(counts.failed, 'dead letter')} to look at.`);
  const paused = [...destinations, ...queues].filter(({ state }) => state === 'paused');
  if (paused.length > 0) attention.push(`${names(paused)} ${paused.length === 1 ? 'is' : 'are'} paused.`);
  if (counts.unqueued > 0)
    attention.push(`${quantity(counts.unqueued, 'event')} ${counts.unqueued === 1 ? 'was' : 'were'} never queued.`);
  const reasons = [...bad, ...attention];
  const level = bad.length > 0 ? 'bad' : attention.length > 0 ? 'attention' : 'good';
  return { level, sentence: reasons[0] ?? 'All events are being delivered.', reasons };
}

function names(list: readonly { name: string }[]): string {
  const more = list.length > namesMax ? ` and ${list.length - namesMax} more` : '';
  return `${list
    .slice(0, namesMax)
    .map(({ name }) => name)
    .join(', ')}${more}`;
}
