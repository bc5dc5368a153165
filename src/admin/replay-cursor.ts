import { createHash } from 'node:crypto';
import { PostcommitError } from '../errors.ts';
import type { EventConditions } from '../outbox/operating/conditions.ts';
import { fromCursorText, toCursorText } from './cursor.ts';
import { isSeq } from './event-reference.ts';
import type { Checked, ReplayTarget } from './filters.ts';

/** Where a replay continues. */
export interface ReplayPosition {
  /** The last seq that it has processed. */
  after: string;
  /** The `selectionHash` of the target that it began with. */
  selection: string;
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

export function toReplayCursor({ after, selection, selected }: ReplayPosition): string {
  const ms = (time: string | undefined) => (time === undefined ? '' : String(Date.parse(time)));
  const { seqUntil, createdFrom, createdBefore } = selected ?? {};
  const bounds = selected ? [seqUntil, ms(createdFrom), ms(createdBefore)] : [];
  return toCursorText(['replay', selection, after, ...bounds].join(':'));
}

export function fromReplayCursor(cursor: unknown): ReplayPosition | undefined {
  if (cursor === undefined) return undefined;
  const text = fromCursorText(cursor, maxLength) ?? '';
  const parts = /^replay:([0-9a-f]{12}):(\d+)(?::(\d+):(-?\d{1,15})?:(-?\d{1,15})?)?$/.exec(text);
  const [, selection = '', after = '', seqUntil, from, before] = parts ?? [];
  if (!isSeq(after) || !isSeq(seqUntil ?? '0')) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_CURSOR',
      'It is not the cursor of a replay. Pass the one that the interrupted or failed replay ended with.',
    );
  }
  const time = (ms: string | undefined) => (ms ? new Date(Number(ms)).toISOString() : undefined);
  const selected =
    seqUntil === undefined ? undefined : { seqUntil, createdFrom: time(from), createdBefore: time(before) };
  return { after, selection, selected };
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
    throw ofAnotherReplay();
  }
  if (selected === undefined) return target;
  const { createdFrom, createdBefore } = selected;
  return {
    ...target,
    ...(createdFrom !== undefined && { from: new Date(createdFrom) }),
    ...(createdBefore !== undefined && { to: new Date(createdBefore) }),
  };
}

/**
 * Tells selections apart, whatever the order of ids. Not by `from` and `to`: relative times mean others by the time that the replay
 * continues, and the cursor has those of the first call.
 */
export function selectionHash(checked: Checked<EventConditions>): string {
  const selection =
    'references' in checked
      ? [...new Set(checked.references.map((each) => ('id' in each ? each.id : each.seq)))].sort()
      : [
          checked.conditions.type,
          checked.conditions.aggregateType,
          checked.conditions.aggregateId,
          checked.conditions.queue,
        ];
  const kind = 'references' in checked ? 'ids' : 'conditions';
  return createHash('sha256')
    .update(JSON.stringify([kind, ...selection]))
    .digest('hex')
    .slice(0, 12);
}

/** Fails with POSTCOMMIT_E_BAD_CURSOR if the cursor is of another selection: events would be skipped. */
export function requireSameSelection(position: ReplayPosition | undefined, selection: string): void {
  if (position !== undefined && position.selection !== selection) throw ofAnotherReplay();
}

function ofAnotherReplay(): PostcommitError {
  return new PostcommitError(
    'POSTCOMMIT_E_BAD_CURSOR',
    'This cursor belongs to a different replay. Repeat the original ids or conditions, including `from` and `to` if they were given.',
  );
}
