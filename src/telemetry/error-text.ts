import { PostcommitError } from '../errors.ts';

const errorTextMax = 2_000;

/** The text of whatever was thrown: never empty, bounded, and storable by PostgreSQL. Never throws itself. */
export function errorText(thrown: unknown): string {
  try {
    const text = thrown instanceof Error ? describe(thrown) + causeOf(thrown) : describeValue(thrown);
    return storable(text) || 'no message';
  } catch {
    return 'thrown value that cannot be shown';
  }
}

/** The same without what our own errors say in general: for places where only the cause is wanted. */
export function causeText(thrown: unknown): string {
  return thrown instanceof PostcommitError && thrown.detail !== '' ? storable(thrown.detail) : errorText(thrown);
}

// Fields of an error may hold any value: the code that throws can set them.
function describe(error: Error): string {
  const message = String(error.message);
  return error.name && error.name !== 'Error' ? `${String(error.name)}: ${message}` : message;
}

function causeOf({ cause }: Error): string {
  if (cause === undefined) return '';
  return ` (cause: ${cause instanceof Error ? describe(cause) : String(cause)})`;
}

function describeValue(thrown: unknown): string {
  if (typeof thrown === 'string') return thrown;
  // JSON has no word for functions, symbols and undefined, and none for bigint but an exception.
  const json = typeof thrown === 'bigint' ? undefined : JSON.stringify(thrown);
  return `thrown value: ${json ?? String(thrown)}`;
}

/**
 * PostgreSQL cannot store NUL, and a lone surrogate is no UTF-8. Cut by code unit, then repaired. Three dots, because many
 * encodings have no ellipsis.
 */
function storable(text: string): string {
  const cut = text.length > errorTextMax ? `${text.slice(0, errorTextMax)}...` : text;
  return cut.replaceAll('\0', '\uFFFD').toWellFormed();
}
