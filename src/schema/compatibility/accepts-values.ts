import type { Comparer } from './comparer.ts';
import { itemsOf } from './intersection.ts';
import type { JsonSchema, SchemaObject } from './json-schema.ts';
import { matches, NotComparable } from './json-schema.ts';
import type { Misfit } from './misfit.ts';

/** Limits of sizes and lengths of the reader that are tighter than those of the writer. */
export function limitMisfits(
  reader: SchemaObject,
  writer: SchemaObject,
  path: string,
  [lower, upper]: readonly [lower: string, upper: string],
): Misfit[] {
  const misfits: Misfit[] = [];
  for (const [keyword, isLower] of [
    [lower, true],
    [upper, false],
  ] as const) {
    const limit = reader[keyword];
    if (limit === undefined || (isLower && limit === 0)) continue;
    const own = writer[keyword];
    const fits = typeof own === 'number' && (isLower ? own >= Number(limit) : own <= Number(limit));
    if (!fits) misfits.push(limitMisfit(path, keyword, limit, own));
  }
  return misfits;
}

function limitMisfit(path: string, keyword: string, reader: unknown, writer: unknown): Misfit {
  return { rule: 'limit', path, about: [keyword], reader: text(reader), writer: text(writer) };
}

function text(limit: unknown): string {
  return limit === undefined ? 'none' : Array.isArray(limit) ? limit.join(' and ') : String(limit);
}

export function stringMisfits(reader: SchemaObject, writer: SchemaObject, path: string): Misfit[] {
  const value = typeof writer.const === 'string' ? writer.const : undefined;
  const length = value === undefined ? undefined : [...value].length;
  const limits = length === undefined ? writer : { minLength: length, maxLength: length };
  const misfits = limitMisfits(reader, limits, path, ['minLength', 'maxLength']);
  for (const keyword of ['pattern', 'format']) {
    const own: unknown[] = writer[keyword] === undefined ? [] : [writer[keyword]].flat();
    const wanted = reader[keyword] === undefined ? [] : [reader[keyword]].flat();
    const fits = (each: unknown) =>
      own.includes(each) || (keyword === 'pattern' && value !== undefined && matches(String(each), value));
    if (!wanted.every(fits)) misfits.push(limitMisfit(path, keyword, reader[keyword], writer[keyword]));
  }
  return misfits;
}

export function numberMisfits(reader: SchemaObject, writer: SchemaObject, path: string): Misfit[] {
  const value = typeof writer.const === 'number' ? writer.const : undefined;
  const misfits: Misfit[] = [];
  const low = value === undefined ? lowest(writer) : { limit: value, isExclusive: false };
  const high = value === undefined ? highest(writer) : { limit: value, isExclusive: false };
  const lower = lowest(reader);
  const upper = highest(reader);
  if (
    lower &&
    !(low && (low.limit > lower.limit || (low.limit === lower.limit && (low.isExclusive || !lower.isExclusive))))
  ) {
    misfits.push(limitMisfit(path, 'minimum', bound(lower), low && bound(low)));
  }
  if (
    upper &&
    !(high && (high.limit < upper.limit || (high.limit === upper.limit && (high.isExclusive || !upper.isExclusive))))
  ) {
    misfits.push(limitMisfit(path, 'maximum', bound(upper), high && bound(high)));
  }
  const step = reader.multipleOf;
  if (step !== undefined) {
    const own = value ?? writer.multipleOf ?? (writer.type === 'integer' ? 1 : undefined);
    // Whole numbers only: a division of others is not exact.
    const isMultiple = Number.isInteger(own) && Number.isInteger(step) && Number(own) % Number(step) === 0;
    if (!isMultiple && !(value === undefined && own === step)) misfits.push(limitMisfit(path, 'multipleOf', step, own));
  }
  return misfits;
}

interface Bound {
  readonly limit: number;
  readonly isExclusive: boolean;
}

function lowest({ minimum, exclusiveMinimum }: SchemaObject): Bound | undefined {
  const [closed, open] = [
    asNumber(minimum, Number.NEGATIVE_INFINITY),
    asNumber(exclusiveMinimum, Number.NEGATIVE_INFINITY),
  ];
  if (closed === open && closed === Number.NEGATIVE_INFINITY) return undefined;
  return open >= closed ? { limit: open, isExclusive: true } : { limit: closed, isExclusive: false };
}

function highest({ maximum, exclusiveMaximum }: SchemaObject): Bound | undefined {
  const [closed, open] = [
    asNumber(maximum, Number.POSITIVE_INFINITY),
    asNumber(exclusiveMaximum, Number.POSITIVE_INFINITY),
  ];
  if (closed === open && closed === Number.POSITIVE_INFINITY) return undefined;
  return open <= closed ? { limit: open, isExclusive: true } : { limit: closed, isExclusive: false };
}

function asNumber(value: unknown, otherwise: number): number {
  if (value === undefined || typeof value === 'number') return value ?? otherwise;
  throw new NotComparable('a limit is not a number');
}

function bound({ limit, isExclusive }: Bound): string {
  return isExclusive ? `${limit} (exclusive)` : String(limit);
}

export function arrayMisfits(comparison: Comparer, reader: SchemaObject, writer: SchemaObject, path: string): Misfit[] {
  const [read, written] = [itemsOf(reader), itemsOf(writer)];
  // A writer of a tuple writes no items beyond those it declares.
  const rest: JsonSchema = written.rest ?? written.first.length === 0;
  const most = typeof writer.maxItems === 'number' ? writer.maxItems : Number.POSITIVE_INFINITY;
  const isFixed = rest === false;
  const itemsMax = isFixed ? Math.min(most, written.first.length) : most;
  const misfits = limitMisfits(
    reader,
    { minItems: writer.minItems, ...(itemsMax !== Number.POSITIVE_INFINITY && { maxItems: itemsMax }) },
    path,
    ['minItems', 'maxItems'],
  );
  const positions = Math.min(Math.max(read.first.length, written.first.length), itemsMax);
  for (let at = 0; at < positions; at++) {
    const schema = read.first[at] ?? read.rest ?? true;
    misfits.push(...comparison.compare(schema, written.first[at] ?? rest, `${path}[${at}]`));
  }
  if (itemsMax > positions) misfits.push(...comparison.compare(read.rest ?? true, rest, `${path}[]`));
  if (reader.uniqueItems === true && writer.uniqueItems !== true && itemsMax > 1) {
    misfits.push(limitMisfit(path, 'uniqueItems', true, undefined));
  }
  return misfits;
}
