import { shown } from '../format.ts';

/** As `expect.any(String)` and the like of vitest and jest are. */
interface AsymmetricMatcher {
  asymmetricMatch(actual: unknown): boolean;
}

/**
 * What differs, one line per place, e.g. `payload.total: expected 12, got 13`. An object must have what the expected one has, and may
 * have more. Arrays have equally many elements. A function is called with the actual value and returns whether it is right.
 */
export function findDifferences(path: string, expected: unknown, actual: unknown): string[] {
  if (typeof expected === 'function') {
    return expected(actual) === true ? [] : [`${path}: ${shown(actual)} does not satisfy ${nameOf(expected)}`];
  }
  if (isMatcher(expected)) {
    return expected.asymmetricMatch(actual) ? [] : [`${path}: expected ${String(expected)}, got ${shown(actual)}`];
  }
  const plain = toPlain(expected);
  const differs = `${path}: expected ${shown(plain)}, got ${shown(actual)}`;
  if (Array.isArray(plain)) {
    if (!Array.isArray(actual)) return [differs];
    if (plain.length !== actual.length) {
      return [`${path}: expected ${plain.length} elements, got ${actual.length}: ${shown(actual)}`];
    }
    return plain.flatMap((element, index) => findDifferences(`${path}[${index}]`, element, actual[index]));
  }
  if (isObject(plain)) {
    if (!isObject(actual) || Array.isArray(actual)) return [differs];
    return Object.entries(plain).flatMap(([name, value]) =>
      findDifferences(`${path}.${name}`, value, Object.hasOwn(actual, name) ? actual[name] : undefined),
    );
  }
  // JSON has no -0.
  return plain === actual || Object.is(plain, actual) ? [] : [differs];
}

/** A Date and other values with toJSON, as the payload has them. Dates that are no part of a payload compare by their text too. */
function toPlain(value: unknown): unknown {
  const { toJSON } = Object(value) as { toJSON?: unknown };
  return typeof toJSON === 'function' ? toJSON.call(value, '') : value;
}

function isMatcher(value: unknown): value is AsymmetricMatcher {
  return isObject(value) && typeof value.asymmetricMatch === 'function';
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function nameOf({ name }: { name: string }): string {
  return name ? `${name}()` : 'the function';
}
