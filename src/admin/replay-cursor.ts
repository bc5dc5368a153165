import { PostcommitError } from '../errors.ts';
import { fromCursorText, toCursorText } from './cursor.ts';
import { isSeq } from './event-reference.ts';
import type { ReplayTarget } from './filters.ts';

/** Where a replay continues. */
export interface ReplayPosition {
  /** The last seq that it has processed. */
  after: string;
  /** What the conditions selected when the replay began. Absent for a list of ids. */
  selected?: ReplayBounds | undefined;
}

/**
 * Without them a continued replay would also take what was emitted since it began, and `--from 6h` would mean another time than
 * at its beginning.
 */
export interface ReplayBounds {
  /** The end of the log. */
  seqUntil: string;
  /** ISO 8601, as in the conditions. */
  createdFrom?: string | undefined;
  createdBefore?: string | undefined;
}

const maxLength = 150;

export function toReplayCursor({ after, selected }: ReplayPosition): string {
  const ms = (time: string | undefined) => (time === undefined ? '' : String(Date.parse(time)));
  const { seqUntil, createdFrom, createdBefore } = selected ?? {};
  return toCursorText(['replay', after, ...(selected ? [seqUntil, ms(createdFrom), ms(createdBefore)] : [])].join(':'));
}

export function fromReplayCursor(cursor: unknown): ReplayPosition | undefined {
  if (cursor === undefined) return undefined;
  const text = fromCursorText(cursor, maxLength) ?? '';
  const parts = /^replay:(\d+)(?::(\d+):(-?\d{1,15})?:(-?\d{1,15})?)?$/.exec(text);
  const [, after = '', seqUntil, from, before] = parts ?? [];
  if (!isSeq(after) || !isSeq(seqUntil ?? '0')) throw new PostcommitError('POSTCOMMIT_E_BAD_CURSOR');
  const time = (ms: string | undefined) => (ms ? new Date(Number(ms)).toISOString() : undefined);
  const selected =
    seqUntil === undefined ? undefined : { seqUntil, createdFrom: time(from), createdBefore: time(before) };
  return { after, selected };
}

/**
 * The target of a continued replay, with the times of its first call: relative times mean others by now. Fails with
 * POSTCOMMIT_E_BAD_CURSOR if the first call had ids and this one has conditions, or the other way around, or conditions on other times.
 */
export function continuedTarget(target: ReplayTarget, position: ReplayPosition | undefined): ReplayTarget {
  if (position === undefined || typeof target !== 'object' || target === null) return target;
  const { ids, from, to } = target as { ids?: unknown; from?: unknown; to?: unknown };
  const { selected } = position;
  const has = [ids === undefined, from !== undefined, to !== undefined].join();
  const had = [selected, selected?.createdFrom, selected?.createdBefore].map((each) => each !== undefined).join();
  if (has !== had) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_CURSOR',
      'A replay continues with the selection that it began with: the same ids or conditions, with from and to if it had them.',
    );
  }
  if (selected === undefined) return target;
  const { createdFrom, createdBefore } = selected;
  return {
    ...target,
    ...(createdFrom !== undefined && { from: new Date(createdFrom) }),
    ...(createdBefore !== undefined && { to: new Date(createdBefore) }),
  };
}
