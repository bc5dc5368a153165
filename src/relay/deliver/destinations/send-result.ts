import { PostcommitError } from '../../../errors.ts';
import type { PublishOutcome } from '../../../publishers/publisher.ts';

/** What came of sending one event to one destination. */
export type SendResult =
  | { kind: 'ok' }
  | { kind: 'retry'; error: unknown; retryAfterMs?: number }
  | { kind: 'reject'; error: unknown }
  /** The destination is down, or an earlier event of the key waits for it: no attempt counts. */
  | { kind: 'waits' }
  /** Not sent, and not its fault. `delayMs`: its part of the destination is busy for about that long. */
  | { kind: 'released'; delayMs?: number };

export const sent: SendResult = { kind: 'ok' };
export const waits: SendResult = { kind: 'waits' };
export const released: SendResult = { kind: 'released' };

export function toResult(outcome: PublishOutcome, retryAfterMaxMs: number): SendResult {
  switch (outcome.kind) {
    case 'ok':
      return sent;
    case 'unavailable':
      return waits;
    case 'reject':
      return { kind: 'reject', error: new PostcommitError('POSTCOMMIT_E_PUBLISH_REJECTED', outcome.reason) };
    default:
      if (outcome.notTried === true) return released;
      return failedAttempt(outcome.reason, boundedMs(outcome.retryAfterMs, retryAfterMaxMs));
  }
}

export function failedAttempt(reason: string, retryAfterMs?: number): SendResult {
  const error = new PostcommitError('POSTCOMMIT_E_PUBLISH_FAILED', reason);
  return { kind: 'retry', error, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
}

/** A publisher may return anything; PostgreSQL has an end of time. */
export function boundedMs(ms: unknown, maxMs: number): number | undefined {
  return typeof ms === 'number' && ms > 0 ? Math.min(ms, maxMs) : undefined;
}
