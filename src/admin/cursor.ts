import { PostcommitError } from '../errors.ts';
import { isSeq } from './event-reference.ts';

/** What a cursor goes on with: one from another list, or of the other order, would skip events silently. */
export type CursorKind = 'events-newest' | 'events-oldest' | 'dead-letters' | 'replay';

/** A place in a list, as text that means nothing to its holder. */
export function toCursor(kind: CursorKind, seq: string): string {
  return Buffer.from(`${kind}:${seq}`).toString('base64url');
}

/** The seq that a cursor stands for. Refuses what is not a cursor of this kind of list. */
export function fromCursor(kind: CursorKind, cursor: unknown): string | undefined {
  if (cursor === undefined) return undefined;
  if (typeof cursor === 'string' && cursor.length <= 100) {
    const [ofKind, seq = ''] = Buffer.from(cursor, 'base64url').toString().split(':');
    // Decoding skips what it does not understand; only what encodes to the same text again was ours.
    if (ofKind === kind && isSeq(seq) && toCursor(kind, seq) === cursor) return seq;
  }
  throw new PostcommitError('POSTCOMMIT_E_BAD_CURSOR');
}
