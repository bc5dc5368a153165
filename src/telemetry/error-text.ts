import { PostcommitError } from '../errors.ts';

const errorTextMax = 2_000;
/** Of a stack, before its frames: a long message must not push them out. */
const stackHeadMax = 500;

/** The text of a thrown value: never empty, limited in length, and storable in PostgreSQL. Never throws. */
export function errorText(thrown: unknown): string {
  try {
    const text = thrown instanceof Error ? describe(thrown) + causeOf(thrown) : describeValue(thrown);
    return storable(text) || 'no message';
  } catch {
    return 'thrown value that cannot be converted to text';
  }
}

/** Like `errorText`, but without the general text of a PostcommitError. */
export function causeText(thrown: unknown): string {
  return thrown instanceof PostcommitError && thrown.detail !== '' ? storable(thrown.detail) : errorText(thrown);
}

/**
 * The stack of an error that the user's code threw, limited in length. `undefined` for anything without one, and for an error of
 * this package, whose stack says nothing about the user's code. Never throws.
 *
 * Reading a stack formats it, about 30 µs, so this is for failures only. Keeping the error instead would keep all that it refers to,
 * a response for example, until the outcome is written.
 */
export function stackOf(thrown: unknown): string | undefined {
  try {
    if (!(thrown instanceof Error) || thrown instanceof PostcommitError) return undefined;
    const { stack } = thrown;
    const frames = typeof stack === 'string' ? stack.indexOf('\n    at ') : -1;
    if (stack === undefined || frames === -1) return undefined;
    return storable(frames > stackHeadMax ? `${stack.slice(0, stackHeadMax)}...${stack.slice(frames)}` : stack);
  } catch {
    return undefined;
  }
}

// The fields of an error can have any type: the code that threw it may have set them.
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
  // JSON.stringify returns undefined for functions, symbols and undefined, and throws for bigint.
  const json = typeof thrown === 'bigint' ? undefined : JSON.stringify(thrown);
  return `thrown value: ${json ?? String(thrown)}`;
}

/**
 * PostgreSQL cannot store NUL, and a lone surrogate is not valid UTF-8. Cutting by code unit can create one, so this repairs the
 * text afterwards. Three dots, because many encodings have no ellipsis.
 */
function storable(text: string): string {
  const cut = text.length > errorTextMax ? `${text.slice(0, errorTextMax)}...` : text;
  return cut.replaceAll('\0', '\uFFFD').toWellFormed();
}
