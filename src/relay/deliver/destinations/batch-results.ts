import type { PublishOutcome } from '../../../publishers/publisher.ts';
import { errorText } from '../../../telemetry/error-text.ts';
import { failedAttempt, released, type TargetOutcome, toTargetOutcome, unavailable } from '../../event/outcome.ts';
import type { PendingMessage } from './pending-message.ts';

/** For a batch that the publisher released as a whole. */
const releasedForLater: TargetOutcome = { kind: 'released', delayMs: 1_000 };

/**
 * The outcomes of a batch's events. An event behind a failed one of its key was not sent: it is released, or goes onto the
 * shelf with that one. `failedAlone`: events whose `unavailable` is not an outage of the destination.
 */
export function batchResults(
  entries: readonly PendingMessage[],
  outcomes: readonly PublishOutcome[],
  { failedAlone, retryAfterMaxMs }: { failedAlone: ReadonlySet<PendingMessage>; retryAfterMaxMs: number },
): TargetOutcome[] {
  // A breach of contract: the same batch would be sent again immediately, forever.
  if (outcomes.every(({ kind }) => kind === 'released')) return entries.map(() => releasedForLater);
  const first = new Map<string, TargetOutcome>();
  // The publisher orders by the key of the message, which the route chooses: several aggregates may share it.
  const firstOfMessageKey = new Map<string, TargetOutcome>();
  return entries.map((entry, index) => {
    const { key, message } = entry;
    const outcome = outcomes[index] as PublishOutcome;
    const result = failedAlone.has(entry) ? aloneOutcome(outcome) : toTargetOutcome(outcome, retryAfterMaxMs);
    if (result.kind === 'delivered') return result;
    const messageKey = message?.key ?? null;
    // A publisher may also return `failed` for a message that it did not send because of an earlier one.
    const mayBeBehind = result.kind === 'released' || result.kind === 'failed';
    const earlier =
      (key === null ? undefined : first.get(key)) ??
      (messageKey === null || !mayBeBehind ? undefined : firstOfMessageKey.get(messageKey));
    const own = earlier === undefined ? result : earlier.kind === 'unavailable' ? unavailable : released;
    if (key !== null && !first.has(key)) first.set(key, own);
    if (messageKey !== null && !firstOfMessageKey.has(messageKey)) firstOfMessageKey.set(messageKey, own);
    return own;
  });
}

function aloneOutcome(outcome: PublishOutcome): TargetOutcome {
  const reason = outcome.kind === 'delivered' ? '' : errorText(outcome.reason);
  return failedAttempt(`${reason} The destination takes other events, so this is not an outage.`);
}
