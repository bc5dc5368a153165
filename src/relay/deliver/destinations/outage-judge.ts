import type { PublishOutcome } from '../../../publishers/publisher.ts';
import { topicName } from './destination-parts.ts';
import type { PendingMessage } from './pending-message.ts';
import { aloneFailuresMax, inRowMax, proofMs, suspectsMax } from './tuning.ts';

interface Suspicion {
  /** How often it has failed alone. */
  failures: number;
  /** How often something had got through when it last failed. */
  successes: number;
}

/**
 * Distinguishes an outage of a destination from the failure of one event, or one topic, that looks like one: a receiver that
 * resets the connection for one event, a partition without a leader.
 *
 * An event (or a topic) that failed as unavailable is a suspect until it gets through. Only a failure that it had alone, with a
 * destination that was alive right after, counts against it: events that fail together fail because of the destination. When a
 * suspect fails again although others got through since, the destination is not the cause. Suspects are kept in memory only: a
 * relay that restarts learns them again, which costs a probe.
 */
export class OutageJudge {
  readonly #suspects = new Map<string, Suspicion>();
  /** Events that failed since something last got through. */
  readonly #inRow = new Set<string>();
  #successes = 0;
  #succeededAt = Number.NEGATIVE_INFINITY;

  /** Whether an event got through a moment ago. */
  get hasProof(): boolean {
    return performance.now() - this.#succeededAt < proofMs;
  }

  /** Whether enough different events have failed in a row. */
  get manyFailed(): boolean {
    return this.#inRow.size >= inRowMax;
  }

  get hasSuspects(): boolean {
    return this.#suspects.size > 0;
  }

  /** Which entries to try a destination with that is not known to take events: none that failed before, if possible. */
  trialIn(entries: readonly PendingMessage[]): (entry: PendingMessage) => boolean {
    let least = 2;
    for (const entry of entries) least = Math.min(least, this.suspicionOf(entry));
    return (entry) => this.suspicionOf(entry) <= least;
  }

  /** The lower, the better it serves as a trial: 0 for no suspect, 1 if its topic is one, 2 if it is one itself. */
  suspicionOf(entry: PendingMessage): 0 | 1 | 2 {
    if (this.#suspects.has(eventName(entry))) return 2;
    return this.#suspects.has(partName(entry)) ? 1 : 0;
  }

  /** These got through. */
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

  /** Whether all of these are known to fail by themselves. */
  isKnown(entries: readonly PendingMessage[]): boolean {
    const isOwn = (name: string) => (this.#suspects.get(name)?.failures ?? 0) >= aloneFailuresMax;
    return entries.every((entry) => isOwn(eventName(entry)) || isOwn(partName(entry)));
  }

  /**
   * These failed in one batch as if the destination were down. `alone`: the events and topics that this counts against.
   * `own`: it is the event's failure, or its topic's. `again`: it has failed before, and nothing got through since.
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
      // Both are to be noted.
      const [isOwnEvent, isOwnPart] = [isOwn(name), isOwn(partName(entry))];
      if (isOwnEvent || isOwnPart) return 'own';
      this.#inRow.add(name);
      return suspect(name).isAgain ? 'again' : 'new';
    });
  }

  /** The outage is known: the next trials start from nothing. */
  tripped(): void {
    this.#inRow.clear();
  }

  #suspect(name: string, isAlone: boolean): Suspicion & { isAgain: boolean } {
    const known = this.#suspects.get(name);
    const isAgain = known !== undefined && known.successes === this.#successes;
    const before = known?.failures ?? 0;
    // Once others have got through between two of its failures, every further one counts: it may be the last one left.
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
 * The events and topics of a batch whose failures do not look like an outage: the only key that failed, or the first one
 * where more keys got through than failed; and the only topic that failed, if nothing of it got through.
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

/** Events of one key stand for each other: the first of them holds up those behind it. */
function eventName({ key, event }: PendingMessage): string {
  return key === null ? `event ${event.seq}` : `key ${key}`;
}

function partName({ part, leg }: PendingMessage): string {
  return `part ${part ?? topicName(leg)}`;
}
