import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import type { DeadReason } from '../outbox/delivering/fail.ts';
import { deadReasons } from '../outbox/delivering/fail.ts';
import type { DeadLetterConditions, EventConditions } from '../outbox/operating/conditions.ts';
import type { EventStatus, ListOrder } from '../outbox/operating/list.ts';
import { eventStatuses } from '../outbox/operating/list.ts';
import type { EventReference } from './event-reference.ts';
import { toReference } from './event-reference.ts';

/** Selects events. All given conditions must match. */
export interface EventFilter {
  type?: string;
  /** `[type]`, or `[type, id]`. */
  aggregate?: readonly [type: string, id?: string | number | bigint];
  /** The queue that it was emitted for. */
  queue?: string;
  /** Emitted at this time or later, by the database's clock. */
  from?: Date;
  /** Emitted before this time. */
  to?: Date;
}

export interface ListFilter extends EventFilter {
  status?: EventStatus;
  /** Default `newest`. */
  order?: ListOrder;
  /** Events per page, from 1 to 1,000. Default 50. */
  limit?: number;
  /** The `next` of the previous page. Pass the same filter otherwise. */
  after?: string;
}

/** Searches events also by what no index covers. */
export interface SearchFilter extends ListFilter {
  /** A header and its value, both exactly. */
  header?: readonly [name: string, value: string];
  /** A part of the text of any failed attempt's error, case-sensitive. */
  error?: string;
}

/** Selects dead letters. All given conditions must match. */
export interface DeadLetterSelector {
  type?: string;
  /** `[type]`, or `[type, id]`. */
  aggregate?: readonly [type: string, id?: string | number | bigint];
  /** The queue that it was emitted for. */
  queue?: string;
  reason?: DeadReason;
  /** A part of the last error's text, case-sensitive. */
  error?: string;
  /** The `group` of an entry of `deadLetterGroups()`: the last error, apart from numbers and ids in it. */
  errorGroup?: string;
  /** Became a dead letter at this time or later, by the database's clock. */
  from?: Date;
  /** Became a dead letter before this time. */
  to?: Date;
  /** Include discarded dead letters. Not a condition by itself. Default `false`. */
  includeDiscarded?: boolean;
}

export interface DeadLetterFilter extends DeadLetterSelector {
  /** Dead letters per page, from 1 to 1,000. Default 50. */
  limit?: number;
  /** The `next` of the previous page. Pass the same filter otherwise. */
  after?: string;
}

/** The events of a bulk operation: by id, by conditions, or all. */
export type Target<Selector> = { ids: readonly string[] } | Selector | { all: true };
export type DeadLetterTarget = Target<DeadLetterSelector>;
export type ReplayTarget = Target<EventFilter>;
export type UndeliveredTarget = Target<EventFilter>;

const idsMax = 100_000;
const textCharsMax = 2_000;
const limitMax = 1_000;

const eventNames = ['type', 'aggregate', 'queue', 'from', 'to'] as const;
const letterNames = [...eventNames, 'reason', 'error', 'errorGroup', 'includeDiscarded'] as const;
const listNames = [...eventNames, 'status', 'order', 'limit', 'after'] as const;

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_FILTER', detail);
}

/** Rejects unknown names: a misspelt condition would make the filter match more than intended. */
function checkNames(filter: unknown, known: readonly string[]): Record<string, unknown> {
  if (typeof filter !== 'object' || filter === null || Array.isArray(filter)) {
    throw bad('The filter must be an object.');
  }
  for (const name of Object.keys(filter)) {
    if (!known.includes(name))
      throw bad(`Unknown condition ${JSON.stringify(name)}. Valid conditions: ${known.join(', ')}.`);
  }
  return filter as Record<string, unknown>;
}

function text(value: unknown, name: string): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'string' || value === '' || value.length > textCharsMax) {
    throw bad(`${name} must be a string of 1 to ${textCharsMax} characters.`);
  }
  if (value.includes('\0') || !value.isWellFormed()) {
    throw new PostcommitError(
      'POSTCOMMIT_E_TEXT_NOT_STORABLE',
      `The text is ${name} of the filter, so nothing can match.`,
    );
  }
  return value;
}

function oneOf<T extends string>(value: unknown, name: string, allowed: readonly T[]): T | undefined {
  if (value === undefined) return undefined;
  if (!allowed.includes(value as T)) throw bad(`${name} must be one of ${allowed.join(', ')}. Got ${shown(value)}.`);
  return value as T;
}

function time(value: unknown, name: string): string | undefined {
  if (value === undefined) return undefined;
  const year = value instanceof Date ? value.getUTCFullYear() : Number.NaN;
  if (!(year >= 1 && year <= 9_999)) throw bad(`${name} must be a valid Date between the years 1 and 9999.`);
  return (value as Date).toISOString();
}

function timeRange(fields: Record<string, unknown>): [from: string | undefined, to: string | undefined] {
  const [from, to] = [time(fields.from, 'from'), time(fields.to, 'to')];
  if (from !== undefined && to !== undefined && from > to) {
    throw bad(`from (${from}) must not be after to (${to}).`);
  }
  return [from, to];
}

function aggregate(value: unknown): { aggregateType?: string; aggregateId?: string } {
  if (value === undefined) return {};
  if (!Array.isArray(value) || value.length < 1 || value.length > 2) {
    throw bad(`aggregate must be [type] or [type, id], e.g. ['order', '42'].`);
  }
  const [type, id] = value as unknown[];
  const aggregateType = text(type, 'aggregate[0]');
  if (aggregateType === undefined) throw bad('aggregate[0] must be the type of the aggregate.');
  const aggregateId = text(typeof id === 'number' || typeof id === 'bigint' ? String(id) : id, 'aggregate[1]');
  return aggregateId === undefined ? { aggregateType } : { aggregateType, aggregateId };
}

function toEventConditions(fields: Record<string, unknown>): EventConditions {
  const [createdFrom, createdBefore] = timeRange(fields);
  const queue = text(fields.queue, 'queue');
  return { type: text(fields.type, 'type'), ...aggregate(fields.aggregate), queue, createdFrom, createdBefore };
}

function toDeadLetterConditions(fields: Record<string, unknown>): DeadLetterConditions {
  const includeDiscarded = fields.includeDiscarded;
  if (includeDiscarded !== undefined && typeof includeDiscarded !== 'boolean') {
    throw bad('includeDiscarded must be true or false.');
  }
  const [deadFrom, deadBefore] = timeRange(fields);
  return {
    type: text(fields.type, 'type'),
    ...aggregate(fields.aggregate),
    queue: text(fields.queue, 'queue'),
    reason: oneOf(fields.reason, 'reason', deadReasons),
    error: text(fields.error, 'error'),
    errorGroup: text(fields.errorGroup, 'errorGroup'),
    deadFrom,
    deadBefore,
    includeDiscarded,
  };
}

export function checkLimit(value: unknown): number {
  if (value === undefined) return 50;
  if (!Number.isInteger(value) || (value as number) < 1 || (value as number) > limitMax) {
    throw bad(`limit must be a whole number from 1 to ${limitMax}. Got ${shown(value)}.`);
  }
  return value as number;
}

export function checkListFilter(filter: ListFilter) {
  return toListRequest(checkNames(filter, listNames));
}

export function checkSearchFilter(filter: SearchFilter) {
  const fields = checkNames(filter, [...listNames, 'header', 'error']);
  return { ...toListRequest(fields), header: header(fields.header), error: text(fields.error, 'error') };
}

function header(value: unknown): { name: string; value: string } | undefined {
  if (value === undefined) return undefined;
  if (!Array.isArray(value) || value.length !== 2) throw bad(`header must be [name, value], e.g. ['tenant', 'acme'].`);
  const [name, content] = [text(value[0], 'header[0]'), text(value[1], 'header[1]')];
  if (name === undefined || content === undefined) throw bad('header must have a name and a value.');
  return { name, value: content };
}

function toListRequest(fields: Record<string, unknown>) {
  return {
    status: oneOf(fields.status, 'status', eventStatuses),
    events: toEventConditions(fields),
    order: oneOf<ListOrder>(fields.order, 'order', ['newest', 'oldest']) ?? 'newest',
    limit: checkLimit(fields.limit),
  };
}

export function checkDeadLetterFilter(filter: DeadLetterFilter) {
  const fields = checkNames(filter, [...letterNames, 'limit', 'after']);
  return { letters: toDeadLetterConditions(fields), limit: checkLimit(fields.limit) };
}

/** The checked target of a bulk operation. An empty filter is an error: it never means all events. */
export type Checked<Conditions> = { references: EventReference[] } | { conditions: Conditions };

export function checkDeadLetterTarget(target: DeadLetterTarget): Checked<DeadLetterConditions> {
  return checkTarget(target, letterNames, toDeadLetterConditions);
}

/** For delivered events and for undelivered ones. */
export function checkEventTarget(target: ReplayTarget | UndeliveredTarget): Checked<EventConditions> {
  return checkTarget(target, eventNames, toEventConditions);
}

function checkTarget<Conditions extends object>(
  target: unknown,
  names: readonly string[],
  toConditions: (fields: Record<string, unknown>) => Conditions,
): Checked<Conditions> {
  const { ids, all, ...rest } = checkNames(target, ['ids', 'all', ...names]);
  if (all !== undefined && typeof all !== 'boolean') throw bad('all must be true or absent.');
  const conditions = toConditions(rest);
  const { includeDiscarded: _, ...narrowing } = conditions as Conditions & { includeDiscarded?: boolean };
  const hasConditions = Object.values(narrowing).some((value) => value !== undefined);
  if ([ids !== undefined, all === true, hasConditions].filter(Boolean).length > 1) {
    throw bad('Pass ids, conditions or all: exactly one of the three.');
  }
  if (ids !== undefined) return { references: toReferences(ids) };
  if (all !== true && !hasConditions) throw new PostcommitError('POSTCOMMIT_E_EMPTY_FILTER');
  return { conditions };
}

function toReferences(ids: unknown): EventReference[] {
  if (!Array.isArray(ids)) throw bad('ids must be a list of event ids.');
  if (ids.length === 0) throw new PostcommitError('POSTCOMMIT_E_EMPTY_FILTER', 'The list of ids is empty.');
  if (ids.length > idsMax) throw bad(`ids has ${ids.length} entries. The maximum is ${idsMax}.`);
  return ids.map(toReference);
}
