import type { PublishOutcome } from '../../../publishers/publisher.ts';
import { topicName } from './destination-parts.ts';
import type { PendingMessage } from './pending-message.ts';
import { aloneFailuresMax, inRowMax, proofMs, suspectsMax } from './tuning.ts';

interface Suspicion {
  /** How often it has failed alone. */
  failures: number;
  /** How many events had been delivered when it last failed. */
  successes: number;
}

/**
 * Distinguishes an outage of a destination from the failure of one event, or one topic, that looks like one: a receiver that
 * resets the connection for one event, a partition without a leader.
 *
 * An event (or a topic) that failed as unavailable is a suspect until it is delivered. A failure counts against it only if it
 * failed alone and the destination was alive right after: events that fail together fail because of the destination. When a
 * suspect fails again although others were delivered since, the destination is not the cause. Suspects are kept in memory
 * only: a relay that restarts learns them again, which costs a probe.
 */
export class FailureAttribution {
  readonly #suspects = new Map<string, Suspicion>();
  /** Events that failed since the last delivery. */
  readonly #inRow = new Set<string>();
  #successes = 0;
  #succeededAt = Number.NEGATIVE_INFINITY;

  /** Whether an event was delivered recently. */
  get hasProof(): boolean {
    return performance.now() - this.#succeededAt < proofMs;
  }

  /** Whether enough different events have failed consecutively. */
  get manyFailed(): boolean {
    return this.#inRow.size >= inRowMax;
  }

  get hasSuspects(): boolean {
    return this.#suspects.size > 0;
  }

  /** Selects trial entries for a destination that is not known to accept events: none that failed before, if possible. */
  trialIn(entries: readonly PendingMessage[]): (entry: PendingMessage) => boolean {
    let least = 2;
    for (const entry of entries) least = Math.min(least, this.suspicionOf(entry));
    return (entry) => this.suspicionOf(entry) <= least;
  }

  /** The lower, the better it is as a trial: 0 for no suspect, 1 if its topic is one, 2 if it is one itself. */
  suspicionOf(entry: PendingMessage): 0 | 1 | 2 {
    if (this.#suspects.has(eventName(entry))) return 2;
    return this.#suspects.has(partName(entry)) ? 1 : 0;
  }

  /** These were delivered. */
  succeeded(entries: Iterable<PendingMessage>): void {
    this.#successes++;
    this.#succeededAt = performance.now();
    if (this.#inRow.size > 0) this.#inRow.clear();
    if (this.#suspects.size === 0) return;
    for (const entry of entries) {
      this.#suspects.delete(eventName(entry));
      this.#suspects.delete(partName(entry));
    }
  }

  /** Whether all of these are known to fail for their own reasons. */
  isKnown(entries: readonly PendingMessage[]): boolean {
    const isOwn = (name: string) => (this.#suspects.get(name)?.failures ?? 0) >= aloneFailuresMax;
    return entries.every((entry) => isOwn(eventName(entry)) || isOwn(partName(entry)));
  }

  /**
   * These failed in one batch as if the destination were down. `alone`: the events and topics that this counts against.
   * `own`: the failure is the event's, or its topic's. `again`: it has failed before, and nothing was delivered since.
   */
  failed(entries: readonly PendingMessage[], alone: ReadonlySet<string>): ('own' | 'again' | 'new')[] {
    const known = new Map<string, Suspicion & { isAgain: boolean }>();
    const suspect = (name: string) => {
      const suspicion = known.get(name) ?? this.#suspect(name, alone.has(name));
      known.set(name, suspicion);
      return suspicion;
    };
    const isOwn = (name: string) => suspect(name).failures >= aloneFailuresMax && alone.has(name);
    return entries.map((entry) => {
      const name = eventName(entry);
      // Records both.
      const [isOwnEvent, isOwnPart] = [isOwn(name), isOwn(partName(entry))];
      if (isOwnEvent || isOwnPart) return 'own';
      this.#inRow.add(name);
      return suspect(name).isAgain ? 'again' : 'new';
    });
  }

  /** The outage is known: the next trials start from scratch. */
  tripped(): void {
    this.#inRow.clear();
  }

  #suspect(name: string, isAlone: boolean): Suspicion & { isAgain: boolean } {
    const known = this.#suspects.get(name);
    const isAgain = known !== undefined && known.successes === this.#successes;
    const before = known?.failures ?? 0;
    // Once others were delivered between two of its failures, every further one counts: it may be the last event left.
    const counts = isAlone && (!isAgain || before !== 1);
    const suspicion = { failures: before + (counts ? 1 : 0), successes: this.#successes };
    this.#suspects.delete(name);
    const [oldest] = this.#suspects.keys();
    if (this.#suspects.size >= suspectsMax && oldest !== undefined) this.#suspects.delete(oldest);
    this.#suspects.set(name, suspicion);
    return { ...suspicion, isAgain };
  }
}

/**
 * The events and topics of a batch whose failures do not look like an outage: the only key that failed, or the first one if
 * more keys were delivered than failed; and the only topic that failed, if nothing of it was delivered.
 */
export function failedAlone(
  entries: readonly PendingMessage[],
  outcomes: readonly PublishOutcome[],
): ReadonlySet<string> {
  const names = (nameOf: (entry: PendingMessage) => string, kind: PublishOutcome['kind']) =>
    new Set(entries.filter((_, index) => outcomes[index]?.kind === kind).map(nameOf));
  const alone = new Set<string>();
  const failed = names(eventName, 'unavailable');
  const [first] = failed;
  if (first !== undefined && (failed.size === 1 || names(eventName, 'delivered').size > failed.size)) alone.add(first);
  const failedParts = names(partName, 'unavailable');
  const [part] = failedParts;
  if (part !== undefined && failedParts.size === 1 && !names(partName, 'delivered').has(part)) alone.add(part);
  return alone;
}

/** Events of one key count as one: the first blocks those behind it. */
function eventName({ key, event }: PendingMessage): string {
  return key === null ? `event ${event.seq}` : `key ${key}`;
}

function partName({ part, leg }: PendingMessage): string {
  return `part ${part ?? topicName(leg)}`;
}
