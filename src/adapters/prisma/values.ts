/**
 * Prisma writes a Date without its offset, which the server then takes for local time. Texts are passed unchanged. Lists
 * of Dates do not occur.
 */
export function toPrisma(value: unknown): unknown {
  return value instanceof Date ? value.toISOString() : value;
}

/** Prisma reads bigint as BigInt and numeric as Decimal, where `pg` reads texts. */
export function toRow(row: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, toPgValue(value)]));
}

function toPgValue(value: unknown): unknown {
  if (typeof value === 'bigint') return String(value);
  if (Array.isArray(value)) return value.map(toPgValue);
  return isDecimal(value) ? value.toString() : value;
}

/** A class of Prisma's own copy of decimal.js. JSON values are plain objects and have no such method. */
function isDecimal(value: unknown): value is { toString(): string } {
  return typeof value === 'object' && value !== null && typeof (value as { toDP?: unknown }).toDP === 'function';
}
