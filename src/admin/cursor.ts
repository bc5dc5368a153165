import { PostcommitError } from '../errors.ts';
import { isSeq } from './event-reference.ts';

/** The list that a cursor belongs to: a cursor of another list or order would silently skip events. */
export type CursorKind = 'events-newest' | 'events-oldest' | 'dead-letters' | 'replay' | 'audit';

/** A position in a list, as opaque text. */
export function toCursor(kind: CursorKind, seq: string): string {
  return Buffer.from(`${kind}:${seq}`).toString('base64url');
}

/** The seq of a cursor. Throws if the text is not a cursor of this list. */
export function fromCursor(kind: CursorKind, cursor: unknown): string | undefined {
  if (cursor === undefined) return undefined;
  if (typeof cursor === 'string' && cursor.length <= 100) {
    const [ofKind, seq = ''] = Buffer.from(cursor, 'base64url').toString().split(':');
    // Decoding ignores invalid characters. Only a text that encodes to itself again is a cursor of ours.
    if (ofKind === kind && isSeq(seq) && toCursor(kind, seq) === cursor) return seq;
  }
  throw new PostcommitError('POSTCOMMIT_E_BAD_CURSOR');
}
