import type { PublishOutcome } from '../../../publishers/publisher.ts';
import { errorText } from '../../../telemetry/error-text.ts';
import type { PendingMessage } from './pending-message.ts';
import { failedAttempt, released, type SendResult, toResult, waits } from './send-result.ts';

/** For a batch of which the publisher tried nothing. */
const releasedForLater: SendResult = { kind: 'released', delayMs: 1_000 };

/**
 * What a batch's outcomes mean for its events. What is behind a failed event of its key was not tried: it goes back, or
 * waits with it. `failedAlone`: events whose `unavailable` is no outage of the destination.
 */
export function batchResults(
  entries: readonly PendingMessage[],
  outcomes: readonly PublishOutcome[],
  { failedAlone, retryAfterMaxMs }: { failedAlone: ReadonlySet<PendingMessage>; retryAfterMaxMs: number },
): SendResult[] {
  const first = new Map<string, SendResult>();
  // The publisher minds the key of the message, which is the route's choice: several aggregates may share it.
  const firstOfMessageKey = new Map<string, SendResult>();
  // Against the contract: the same batch would come again at once, and for ever.
  const isNothingTried = outcomes.every((outcome) => outcome.kind === 'retry' && outcome.notTried === true);
  if (isNothingTried) return entries.map(() => releasedForLater);
  return entries.map((entry, index) => {
    const { key, message } = entry;
    const outcome = outcomes[index] as PublishOutcome;
    const result = failedAlone.has(entry) ? aloneResult(outcome) : toResult(outcome, retryAfterMaxMs);
    if (result.kind === 'ok') return result;
    const messageKey = message?.key ?? null;
    const earlier =
      (key === null ? undefined : first.get(key)) ??
      (messageKey === null || result.kind !== 'retry' ? undefined : firstOfMessageKey.get(messageKey));
    const own = earlier === undefined ? result : earlier.kind === 'waits' ? waits : released;
    if (key !== null && !first.has(key)) first.set(key, own);
    if (messageKey !== null && !firstOfMessageKey.has(messageKey)) firstOfMessageKey.set(messageKey, own);
    return own;
  });
}

function aloneResult(outcome: PublishOutcome): SendResult {
  const reason = outcome.kind === 'ok' ? '' : errorText(outcome.reason);
  return failedAttempt(`${reason} The destination takes other events, so this is not an outage.`);
}
