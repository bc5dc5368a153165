import type { Failure } from '../../outbox/delivering/fail.ts';
import type { Settlement } from '../../outbox/delivering/settle.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import type { EventOutcome } from '../event/outcome.ts';
import type { ResolvedRetry } from '../event/retry-policy.ts';
import { retryDelayMs } from '../event/retry-policy.ts';

/**
 * An outcome with its transition in the database. `kind` is what counters and lifecycle events report: the outcome, or
 * `deadLettered` for an event that was rejected or has no attempts left.
 */
export type SettleEntry = { event: ClaimedEvent } & (
  | { kind: 'delivered'; settlement: Settlement }
  | { kind: 'failed'; failure: FailureOf<'retry'> }
  | { kind: 'deadLettered'; failure: FailureOf<'dead_letter' | 'block'> }
  | { kind: 'unavailable'; failure: FailureOf<'shelve'> }
  | { kind: 'released'; failure: FailureOf<'release'> }
);

type FailureOf<T extends Failure['transition']> = Failure & { transition: T };

export interface TransitionOptions {
  /** For targets that have no policy of their own. */
  retry: ResolvedRetry;
  /** Whether a dead letter blocks its key. */
  poison: 'skip' | 'block';
}

/**
 * Maps the outcome of an event to the transition in the database. No other module does.
 *
 *   delivered    settle              deleted from the queue, recorded as delivered
 *   failed       retry               due again after the delay of the retry policy; a dead letter after the last attempt.
 *                                    Of several policies the longest delay, and the fewest attempts
 *   rejected     dead_letter, block  with `poison: 'block'` the event also stays in the queue and blocks its key
 *   unavailable  shelve              moved onto the shelf of the destinations it waits for
 *   released     release             ready again, or due after `delayMs`
 */
export function toTransition(event: ClaimedEvent, outcome: EventOutcome, options: TransitionOptions): SettleEntry {
  const { seq, attempts } = event;
  switch (outcome.kind) {
    case 'delivered':
      return { event, kind: 'delivered', settlement: { seq, targets: outcome.targets } };
    case 'released': {
      const { kind, ...rest } = outcome;
      return { event, kind, failure: { seq, attempts, transition: 'release', ...rest } };
    }
    case 'unavailable': {
      const { kind, done, waitsFor } = outcome;
      return { event, kind, failure: { seq, attempts, transition: 'shelve', done, waitsFor } };
    }
    case 'rejected': {
      const { kind: _, ...rest } = outcome;
      const transition = deadLetterTransition(event, options.poison);
      return { event, kind: 'deadLettered', failure: { seq, attempts, transition, ...rest } };
    }
    default:
      return failed(event, outcome, options);
  }
}

/** For an event that failed before it was passed to a target. */
const relayPolicy: readonly undefined[] = [undefined];

/** A deleted event can never be delivered: it must not block its key. */
export function deadLetterTransition({ id }: ClaimedEvent, poison: 'skip' | 'block'): 'dead_letter' | 'block' {
  return poison === 'block' && id !== '' ? 'block' : 'dead_letter';
}

function failed(
  event: ClaimedEvent,
  { done, errors, owed, retries = relayPolicy, retryAfterMs = 0, isUntried = false }: EventOutcome & { kind: 'failed' },
  options: TransitionOptions,
): SettleEntry {
  const { seq, attempts, attemptsMax } = event;
  const owing = owed === undefined ? {} : { owed };
  const policies = new Set(retries.map((policy) => policy ?? options.retry));
  const delaysMs = Array.from(policies, (policy) => retryDelayMs(policy, attempts + 1, { attemptsMax }));
  if (delaysMs.includes(undefined)) {
    const transition = deadLetterTransition(event, options.poison);
    return {
      event,
      kind: 'deadLettered',
      failure: { seq, attempts, transition, reason: 'exhausted', done, errors, ...owing },
    };
  }
  // No target gets the event before its own delay has passed, nor before the time that a receiver requested.
  const delayMs = Math.max(...(delaysMs as number[]), retryAfterMs);
  return {
    event,
    kind: 'failed',
    failure: { seq, attempts, transition: 'retry', delayMs, done, errors, isUntried, ...owing },
  };
}

/** Whether a dead letter blocks its key. */
export function isBlocking(entry: SettleEntry & { kind: 'deadLettered' }): boolean {
  return entry.failure.transition === 'block';
}

/** How long until the event is tried again; `undefined` if it is ready immediately, or not tried again. */
export function delayOf(entry: SettleEntry): number | undefined {
  return 'failure' in entry && 'delayMs' in entry.failure ? entry.failure.delayMs : undefined;
}
