import { PostcommitError } from '../errors.ts';
import { isUuid } from '../uuid.ts';

/** How an operator names an event. */
export type EventReference = { id: string } | { seq: string };

const seqMax = 9_223_372_036_854_775_807n;

/** Whether PostgreSQL would take the text for a bigint from 0. */
export function isSeq(text: string): boolean {
  return /^\d{1,19}$/.test(text) && BigInt(text) <= seqMax;
}

/** An event's id (a UUID) or its seq (digits). Refuses anything else. */
export function toReference(given: unknown): EventReference {
  if (isUuid(given)) return { id: given.toLowerCase() };
  if (typeof given === 'string' && isSeq(given)) return { seq: String(BigInt(given)) };
  const shown = JSON.stringify(given)?.slice(0, 80) ?? String(given);
  throw new PostcommitError('POSTCOMMIT_E_BAD_ID', `Got ${shown}. Name an event by its id, or by its seq in digits.`);
}
