import { PostcommitError } from '../../errors.ts';
import type { DeadReason, TargetError } from '../../outbox/delivering/fail.ts';
import type { PublishOutcome } from '../../publishers/publisher.ts';
import { errorText, stackOf } from '../../telemetry/error-text.ts';
import type { ResolvedRetry } from './retry-policy.ts';

/*
 * The outcome of an event. The same five words are used from the publisher to the counters:
 *
 *   delivered    the target has it
 *   failed       an attempt failed; retry later
 *   rejected     never retry: a dead letter
 *   unavailable  the destination is down: no attempt is counted, the event goes onto the shelf
 *   released     not tried: back to the queue, no attempt is counted
 *
 * A publisher returns a PublishOutcome for each message. A target (handler or destination) has a TargetOutcome, and the
 * outcomes of all targets of an event combine into its EventOutcome. src/relay/settle/transition.ts maps that to what the
 * database does with the event.
 */

/** The outcome of one event at one target. */
export type TargetOutcome =
  /** `isSettled`: it was the last target, and the event is settled already, in the transaction of a handler. */
  | { kind: 'delivered'; isSettled?: true }
  /** `retry`: the target's own policy. Without it the relay's applies. */
  | { kind: 'failed'; error: unknown; retryAfterMs?: number; retry?: ResolvedRetry | undefined }
  | { kind: 'rejected'; error: unknown }
  /** The destination is down, or an earlier event of the key is on the shelf for it. */
  | { kind: 'unavailable' }
  /**
   * `delayMs`: its part of the destination is busy for about that long. `isForeign`: only another relay has this handler, or
   * knows the version of the event, so this relay cannot try it.
   */
  | { kind: 'released'; delayMs?: number; isForeign?: boolean };

export const delivered: TargetOutcome = { kind: 'delivered' };
export const unavailable: TargetOutcome = { kind: 'unavailable' };
export const released: TargetOutcome = { kind: 'released' };

/** The outcome of one delivery of an event, all of its targets together. `done`: every target that has the event. */
export type EventOutcome =
  | { kind: 'delivered'; targets: readonly string[]; isSettled?: boolean }
  /**
   * `isUntried`: the relay before this one ended during the delivery, and this relay has not tried it. `retries`: the
   * policies of the targets that failed, `undefined` for the relay's.
   */
  | ({
      kind: 'failed';
      done: readonly string[];
      errors: TargetError[];
      retries?: readonly (ResolvedRetry | undefined)[];
      retryAfterMs?: number;
      isUntried?: boolean;
    } & Owing)
  | ({ kind: 'rejected'; reason: DeadReason; done: readonly string[]; errors: TargetError[] } & Owing)
  /** All targets that are left are destinations that are down. */
  | { kind: 'unavailable'; done: readonly string[]; waitsFor: readonly string[] }
  /** Without `done` the database keeps the targets it knows of. */
  | ({ kind: 'released'; done?: readonly string[]; delayMs?: number } & Owing);

interface Owing {
  /** Targets it must still reach, so that no relay settles it without them. Without it, what was owed stays. */
  owed?: readonly string[];
}

/** The outcome of a target, with its name and the name by which an event that has not reached it owes it. */
export interface NamedOutcome {
  target: string;
  owedAs: string;
  outcome: TargetOutcome;
}

/** How long an event is left to a relay that has its handler, if this relay delivered it nowhere. */
const foreignDelayMs = 1_000;

/** The worst outcome decides: rejected, else failed, else released, else unavailable. */
export function combine(doneBefore: readonly string[], outcomes: readonly NamedOutcome[]): EventOutcome {
  const owed = [...new Set(outcomes.flatMap(({ owedAs, outcome }) => (outcome.kind === 'delivered' ? [] : owedAs)))];
  const done = [...doneBefore];
  const rejections: TargetError[] = [];
  const failures: TargetError[] = [];
  const retries: (ResolvedRetry | undefined)[] = [];
  const waitsFor: string[] = [];
  let retryAfterMs = 0;
  let delayMs = 0;
  let isReleased = false;
  let isForeign = false;
  let isSettled = false;
  for (const { target, owedAs, outcome } of outcomes) {
    if (outcome.kind === 'delivered') {
      done.push(target);
      isSettled ||= outcome.isSettled === true;
    } else if (outcome.kind === 'rejected') rejections.push(toTargetError(target, outcome.error));
    else if (outcome.kind === 'failed') {
      failures.push(toTargetError(target, outcome.error));
      retries.push(outcome.retry);
      retryAfterMs = Math.max(retryAfterMs, outcome.retryAfterMs ?? 0);
    } else if (outcome.kind === 'unavailable') waitsFor.push(owedAs);
    else if (outcome.isForeign) isForeign = true;
    else {
      isReleased = true;
      delayMs = Math.max(delayMs, outcome.delayMs ?? 0);
    }
  }
  // The deciding error comes last: a dead letter shows that one.
  if (rejections.length > 0) {
    return { kind: 'rejected', reason: 'rejected', done, errors: [...failures, ...rejections], owed };
  }
  if (failures.length > 0) return { kind: 'failed', done, errors: failures, retries, retryAfterMs, owed };
  if (isReleased) return { kind: 'released', done, owed, ...(delayMs > 0 && { delayMs }) };
  // Not onto the shelf, where later events of its key could pass it at the handler that it is owed to.
  if (isForeign) {
    return { kind: 'released', done, owed, ...(done.length > doneBefore.length ? {} : { delayMs: foreignDelayMs }) };
  }
  if (waitsFor.length > 0) return { kind: 'unavailable', done, waitsFor: [...new Set(waitsFor)] };
  return isSettled ? { kind: 'delivered', targets: done, isSettled } : { kind: 'delivered', targets: done };
}

/** An outcome that no single target has: the event itself cannot be delivered. */
export function rejectedEvent(
  done: readonly string[],
  error: PostcommitError,
  reason: DeadReason = 'rejected',
): EventOutcome {
  return { kind: 'rejected', reason, done, errors: [toTargetError(null, error)] };
}

export function failedEvent(done: readonly string[], error: unknown): EventOutcome {
  return { kind: 'failed', done, errors: [toTargetError(null, error)] };
}

/** The outcome of a target from that of its publisher. */
export function toTargetOutcome(outcome: PublishOutcome, retryAfterMaxMs: number): TargetOutcome {
  switch (outcome.kind) {
    case 'delivered':
      return delivered;
    case 'unavailable':
      return unavailable;
    case 'released':
      return released;
    case 'rejected':
      return { kind: 'rejected', error: new PostcommitError('POSTCOMMIT_E_PUBLISH_REJECTED', outcome.reason) };
    default:
      return failedAttempt(outcome.reason, boundedMs(outcome.retryAfterMs, retryAfterMaxMs));
  }
}

export function failedAttempt(reason: string, retryAfterMs?: number): TargetOutcome {
  const error = new PostcommitError('POSTCOMMIT_E_PUBLISH_FAILED', reason);
  return { kind: 'failed', error, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
}

/** A publisher may return anything, and PostgreSQL has a largest timestamp. */
export function boundedMs(ms: unknown, maxMs: number): number | undefined {
  return typeof ms === 'number' && ms > 0 ? Math.min(ms, maxMs) : undefined;
}

export function toTargetError(target: string | null, thrown: unknown): TargetError {
  const stack = stackOf(thrown);
  return { target, code: codeOf(thrown), error: errorText(thrown), ...(stack !== undefined && { stack }) };
}

function codeOf(thrown: unknown): string {
  try {
    if (thrown instanceof PostcommitError) return thrown.code;
  } catch {
    // A proxy may throw.
  }
  return 'POSTCOMMIT_E_HANDLER_FAILED';
}
