import type { Verdict } from '../dispatch/dispatcher.ts';
import type { RetryExponential, RetrySchedule } from './backoff.ts';
import { retryDelayMs } from './backoff.ts';
import type { SettleEntry } from './settler.ts';

/** How long an event of a slow key steps aside. */
const shedMs = 1_000;

interface VerdictOptions {
  retry: RetrySchedule | Required<RetryExponential>;
  poison: 'skip' | 'block';
}

/** What is to be written down for a verdict: the retry policy and the operator's choice for poison are applied here. */
export function toEntry(verdict: Verdict, options: VerdictOptions): SettleEntry {
  const { event, outcome } = verdict;
  const { seq, attempts } = event;
  if (outcome === 'shed') return { event, failure: { seq, attempts, fate: 'release', delayMs: shedMs } };
  if (outcome === 'release') {
    // Due together with the event it waits for, so that the key goes on in one piece.
    const delayMs = verdict.behind?.retryInMs;
    return { event, failure: { seq, attempts, fate: 'release', ...(delayMs === undefined ? {} : { delayMs }) } };
  }
  if (outcome.kind === 'ok') return { event, settlement: { seq, targets: outcome.targets } };
  if (outcome.kind === 'release') {
    const { kind: fate, ...rest } = outcome;
    if (outcome.delayMs !== undefined) event.retryInMs = outcome.delayMs;
    return { event, failure: { seq, attempts, fate, ...rest } };
  }
  if (outcome.kind === 'shelve') {
    const { done, waitsFor } = outcome;
    return { event, failure: { seq, attempts, fate: 'shelve', done, waitsFor } };
  }
  // What is no longer in the log can never be delivered: nothing is gained by waiting for it.
  const fate = options.poison === 'block' && event.id !== '' ? 'hold' : 'bury';
  const { done, errors } = outcome;
  const owing = outcome.owed === undefined ? {} : { owed: outcome.owed };
  if (outcome.kind === 'reject') {
    return { event, failure: { seq, attempts, fate, reason: outcome.reason, done, errors, ...owing } };
  }
  const policyMs = retryDelayMs(options.retry, attempts + 1);
  if (policyMs === undefined) {
    return { event, failure: { seq, attempts, fate, reason: 'exhausted', done, errors, ...owing } };
  }
  // A receiver that says when to come again is obeyed.
  const delayMs = Math.max(policyMs, outcome.retryAfterMs ?? 0);
  event.retryInMs = delayMs;
  const { isUntried = false } = outcome;
  return { event, failure: { seq, attempts, fate: 'retry', delayMs, done, errors, isUntried, ...owing } };
}
