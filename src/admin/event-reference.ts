import { PostcommitError } from '../errors.ts';
import { isUuid } from '../uuid.ts';

/** How an operator refers to an event. */
export type EventReference = { id: string } | { seq: string };

const seqMax = 9_223_372_036_854_775_807n;

/** Whether the text is a non-negative bigint for PostgreSQL. */
export function isSeq(text: string): boolean {
  return /^\d{1,19}$/.test(text) && BigInt(text) <= seqMax;
}

/** Parses an event's id (a UUID) or its seq (digits). Throws for anything else. */
export function toReference(value: unknown): EventReference {
  if (isUuid(value)) return { id: value.toLowerCase() };
  if (typeof value === 'string' && isSeq(value)) return { seq: String(BigInt(value)) };
  const shown = JSON.stringify(value)?.slice(0, 80) ?? String(value);
  throw new PostcommitError('POSTCOMMIT_E_BAD_ID', `Got ${shown}. Pass the id of an event, or its seq.`);
}
