import { PostcommitError } from '../errors.ts';
import { isSeq } from './event-reference.ts';

/** The list that a cursor belongs to: a cursor of another list or order would silently skip events. */
export type CursorKind = 'events-newest' | 'events-oldest' | 'dead-letters' | 'audit';

/** A position in a list, as opaque text. */
export function toCursor(kind: CursorKind, seq: string): string {
  return toCursorText(`${kind}:${seq}`);
}

/** The seq of a cursor. Throws if the text is not a cursor of this list. */
export function fromCursor(kind: CursorKind, cursor: unknown): string | undefined {
  if (cursor === undefined) return undefined;
  const [ofKind, seq = '', ...rest] = fromCursorText(cursor, 100)?.split(':') ?? [];
  if (ofKind === kind && isSeq(seq) && rest.length === 0) return seq;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_CURSOR',
    'Pass the `next` of the previous page of this list, with the same order, or start without a cursor.',
  );
}

export function toCursorText(content: string): string {
  return Buffer.from(content).toString('base64url');
}

export function fromCursorText(cursor: unknown, maxLength: number): string | undefined {
  if (typeof cursor !== 'string' || cursor.length > maxLength) return undefined;
  const content = Buffer.from(cursor, 'base64url').toString();
  // Decoding ignores invalid characters. Only a text that encodes to itself again is a cursor of ours.
  return toCursorText(content) === cursor ? content : undefined;
}
