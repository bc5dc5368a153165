import type { Executor } from '../database/executor.ts';
import { requireRows, singleColumn } from '../database/single-column.ts';

/**
 * Runs a statement that returns one column, `json`, of JSON text, and parses it. Only text goes in and out, because every
 * driver and ORM passes text unchanged: one converts a bigint, a timestamp or an array to a number, another to a BigInt or an
 * object. Bigints are text inside of the JSON too, because a number would lose digits beyond 2^53.
 */
export async function readJson<Row>(
  db: Executor,
  text: string,
  values: readonly (string | null)[] = [],
): Promise<Row[]> {
  const { rows } = await db.query(text, [...values]);
  return requireRows(rows).map((row) => JSON.parse(singleColumn(row, 'json') as string) as Row);
}

/** An array parameter as text. Only for numbers and uuids, which need no quoting. */
export function arrayText(values: readonly string[]): string {
  return `{${values.join(',')}}`;
}

const dateMsMax = 8.64e15;
const postgresTime = /^(\d{4,})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?( BC)?$/;

/**
 * Parses a time as PostgreSQL writes it in JSON. Usually that is ISO 8601, which `Date` reads. Exceptions are years BC and
 * after 9999, and offsets with seconds, which a session has for times before its zone was standardised. `Date` ends 275,000
 * years from now: later times, and infinity, become its first or last value.
 */
export function toDate(time: string): Date {
  const date = new Date(time);
  if (!Number.isNaN(date.getTime())) return date;
  if (time.startsWith('-inf')) return new Date(-dateMsMax);
  const found = postgresTime.exec(time);
  if (!found) return new Date(time.startsWith('inf') ? dateMsMax : Number.NaN);
  const [, year, month, day, hours, minutes, seconds, fraction = '0', sign, ...rest] = found;
  const [offsetHours, offsetMinutes = '0', offsetSeconds = '0', bc] = rest;
  const utc = new Date(0);
  utc.setUTCFullYear(bc ? 1 - Number(year) : Number(year), Number(month) - 1, Number(day));
  utc.setUTCHours(Number(hours), Number(minutes), Number(seconds), Math.floor(Number(fraction) * 1_000));
  const offsetMs = ((Number(offsetHours) * 60 + Number(offsetMinutes)) * 60 + Number(offsetSeconds)) * 1_000;
  const ms = utc.getTime() - (sign === '-' ? -offsetMs : offsetMs);
  return new Date(Number.isNaN(ms) ? (bc ? -dateMsMax : dateMsMax) : ms);
}

/** A property that is absent instead of null: `...optional('deadAt', row.deadAt, toDate)`. */
export function optional<Name extends string, Value, Result>(
  name: Name,
  value: Value | null,
  convert: (value: Value) => Result,
): { [key in Name]?: Result } {
  return value === null ? {} : ({ [name]: convert(value) } as { [key in Name]: Result });
}
