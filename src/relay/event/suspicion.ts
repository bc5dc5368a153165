import { PostcommitError } from '../../errors.ts';
import type { ClaimedRow } from '../../outbox/delivering/claim.ts';

/**
 * After this many takeovers an event is a suspect, and a prime suspect. claim_many, claim_next, claim_one, fail and the index of suspects
 * have the same numbers. From `primeFrom` on, `takeovers` counts trials.
 */
const suspectFrom = 2;
const primeFrom = 4;
/** After this many trials that ended their relay, a prime suspect is a dead letter. */
const fatalTrialsMax = 3;
/** How many suspects a relay claims at once. */
export const suspectsMax = 32;

/** Whether the event may be what ended the relays that owned it. */
export function isSuspect({ takeovers }: Pick<ClaimedRow, 'takeovers'>): boolean {
  return takeovers >= suspectFrom;
}

/** Whether to deliver it with nothing else in flight: if the relay ends then, this event is the cause. */
export function isPrimeSuspect(event: ClaimedRow): boolean {
  return event.takeovers >= primeFrom && suspicionOf(event) === undefined;
}

/**
 * The error of a prime suspect that was taken over from a relay that ended during its trial. `undefined`: it may be delivered.
 */
export function suspicionOf({
  takenOver,
  takeovers,
}: ClaimedRow): { error: PostcommitError; isFinal: boolean } | undefined {
  const fatalTrials = takeovers - primeFrom;
  if (!takenOver || fatalTrials < 1) return undefined;
  const times = fatalTrials === 1 ? 'once' : `${fatalTrials} times`;
  const error = new PostcommitError('POSTCOMMIT_E_RELAY_ENDED', `It was the only event in flight, ${times}.`);
  return { error, isFinal: fatalTrials >= fatalTrialsMax };
}
