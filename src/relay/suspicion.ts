import { PostcommitError } from '../errors.ts';
import type { ClaimedRow } from '../outbox/claim.ts';

/** From this many relays on that ended while they held it, an event is claimed one at a time (claim_many in SQL). */
const suspectFrom = 2;
/** After this many it becomes a dead letter. Until then each one beyond `suspectFrom` counts as an attempt. */
const rescuesMax = 5;

/** Whether the event may be what ended the relays that held it. */
export function isSuspect({ rescues }: Pick<ClaimedRow, 'rescues'>): boolean {
  return rescues >= suspectFrom;
}

/**
 * What to say of an event that was taken over from a relay which held it as its only suspect: the relay ended, most
 * likely because of it. `undefined`: there is nothing to say, and it is to be delivered.
 */
export function suspicionOf({
  rescued,
  rescues,
}: ClaimedRow): { error: PostcommitError; isFinal: boolean } | undefined {
  if (!rescued || rescues <= suspectFrom) return undefined;
  const error = new PostcommitError('POSTCOMMIT_E_RELAY_ENDED', `${rescues} relays have ended while they held it.`);
  return { error, isFinal: rescues >= rescuesMax };
}
