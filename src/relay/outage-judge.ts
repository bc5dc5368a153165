import { topicName } from './destination-parts.ts';
import type { PendingMessage } from './pending-message.ts';

/** So many different events must fail in a row before that alone is an outage. */
const inRowMax = 3;
/** An event that fails so often, while others get through, fails by itself. */
const failuresMax = 3;
/** For this long something that got through proves that the destination takes events. */
const proofMs = 5_000;
const suspectsMax = 10_000;

interface Suspicion {
  failures: number;
  /** How often something had got through when it last failed. */
  successes: number;
}

/**
 * Tells an outage of a destination from the failure of one event, or one topic, that looks like one: a receiver that
 * resets the connection for one event, a partition without a leader.
 *
 * An event (or a topic) that failed as unavailable is a suspect until something of it gets through. When a suspect fails
 * again although others got through since, the destination is not to blame. Suspects are kept in memory only: a relay
 * that restarts learns them anew, at the price of a probe.
 */
export class OutageJudge {
  readonly #suspects = new Map<string, Suspicion>();
  /** Events that failed since something last got through. */
  readonly #inRow = new Set<string>();
  #successes = 0;
  #succeededAt = Number.NEGATIVE_INFINITY;

  /** Whether something got through a moment ago. */
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

  /**
   * These failed in one batch as if the destination were down. `own`: it is the event's failure, or its topic's. `again`:
   * it has failed before, and nothing got through since.
   */
  failed(entries: readonly PendingMessage[]): ('own' | 'again' | 'new')[] {
    const known = new Map<string, Suspicion & { isAgain: boolean }>();
    const suspect = (name: string) => {
      const suspicion = known.get(name) ?? this.#suspect(name);
      known.set(name, suspicion);
      return suspicion;
    };
    return entries.map((entry) => {
      const event = suspect(eventName(entry));
      if (event.failures >= failuresMax || suspect(partName(entry)).failures >= failuresMax) return 'own';
      this.#inRow.add(eventName(entry));
      return event.isAgain ? 'again' : 'new';
    });
  }

  /** The outage is known: the next trials start from nothing. */
  tripped(): void {
    this.#inRow.clear();
  }

  #suspect(name: string): Suspicion & { isAgain: boolean } {
    const known = this.#suspects.get(name);
    const isAgain = known !== undefined && known.successes === this.#successes;
    // Once others have got through between two of its failures, every further one counts: it may be the last one left.
    const counts = !isAgain || known.failures > 1;
    const suspicion = { failures: (known?.failures ?? 0) + (counts ? 1 : 0), successes: this.#successes };
    this.#suspects.delete(name);
    const [oldest] = this.#suspects.keys();
    if (this.#suspects.size >= suspectsMax && oldest !== undefined) this.#suspects.delete(oldest);
    this.#suspects.set(name, suspicion);
    return { ...suspicion, isAgain };
  }
}

/** Events of one key stand for each other: the first of them holds up those behind it. */
function eventName({ key, event }: PendingMessage): string {
  return key === null ? `event ${event.seq}` : `key ${key}`;
}

function partName({ part, leg }: PendingMessage): string {
  return `part ${part ?? topicName(leg)}`;
}
