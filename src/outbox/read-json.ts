import type { Executor } from '../database/executor.ts';

/**
 * Runs a statement that answers one column, `json`, of JSON text, and parses it. Text goes in and text comes out,
 * because that is what every driver and ORM hands over unchanged: of a bigint, a timestamp or an array one makes a
 * number, the next a BigInt, the third an object. Bigints are text inside of the JSON too, as a number would lose
 * digits past 2^53.
 */
export async function readJson<Row>(
  db: Executor,
  text: string,
  values: readonly (string | null)[] = [],
): Promise<Row[]> {
  const { rows } = await db.query(text, [...values]);
  return rows.map((row) => JSON.parse(row.json as string) as Row);
}

/** An array parameter as text. Only for numbers and uuids, which need no quoting. */
export function arrayText(values: readonly string[]): string {
  return `{${values.join(',')}}`;
}

/** PostgreSQL writes times into JSON as ISO 8601, which `Date` reads. */
export function toDate(time: string): Date {
  return new Date(time);
}

/** For a property that is absent rather than null: `...optional('deadAt', row.deadAt, toDate)`. */
export function optional<Name extends string, Value, Result>(
  name: Name,
  value: Value | null,
  convert: (value: Value) => Result,
): { [key in Name]?: Result } {
  return value === null ? {} : ({ [name]: convert(value) } as { [key in Name]: Result });
}
