import { PostcommitError } from '../../errors.ts';
import type { ClaimedRow } from '../../outbox/delivering/claim.ts';

/** From so many rescues on, an event is a suspect, and a prime suspect. claim_many has the same numbers. */
const suspectFrom = 2;
const primeFrom = 4;
/** So many trials of a prime suspect may end its relay; the last one makes it a dead letter. */
const fatalTrialsMax = 3;
/** How many suspects a relay holds at once. */
export const suspectsHeldMax = 32;

/** Whether the event may be what ended the relays that held it. */
export function isSuspect({ rescues }: Pick<ClaimedRow, 'rescues'>): boolean {
  return rescues >= suspectFrom;
}

/** Whether it is to be delivered with nothing else under way, so that it is known what ends the relay if something does. */
export function isPrimeSuspect(event: ClaimedRow): boolean {
  return event.rescues >= primeFrom && suspicionOf(event) === undefined;
}

/**
 * What to say of a prime suspect that was taken over from a relay that ended during its trial. `undefined`: there is
 * nothing to say, and it is to be delivered.
 */
export function suspicionOf({
  rescued,
  rescues,
}: ClaimedRow): { error: PostcommitError; isFinal: boolean } | undefined {
  const fatalTrials = rescues - primeFrom;
  if (!rescued || fatalTrials < 1) return undefined;
  const times = fatalTrials === 1 ? 'once' : `${fatalTrials} times`;
  const error = new PostcommitError('POSTCOMMIT_E_RELAY_ENDED', `It was the only event being delivered, ${times}.`);
  return { error, isFinal: fatalTrials >= fatalTrialsMax };
}
