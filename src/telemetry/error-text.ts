const errorTextMax = 2_000;

/** The text of whatever was thrown: never empty, bounded, and storable by PostgreSQL. */
export function errorText(thrown: unknown): string {
  let text: string;
  try {
    if (thrown instanceof Error) {
      text = thrown.cause === undefined ? describe(thrown) : `${describe(thrown)} (cause: ${causeText(thrown.cause)})`;
    } else {
      text = typeof thrown === 'string' ? thrown : `thrown value: ${JSON.stringify(thrown) ?? String(thrown)}`;
    }
  } catch {
    text = 'thrown value that cannot be shown';
  }
  return storable(text) || 'no message';
}

function describe(error: Error): string {
  return error.name && error.name !== 'Error' ? `${error.name}: ${error.message}` : error.message;
}

function causeText(cause: unknown): string {
  return cause instanceof Error ? describe(cause) : String(cause);
}

/** PostgreSQL cannot store NUL, and a lone surrogate is no UTF-8. Cut by code unit, then repaired. */
function storable(text: string): string {
  const cut = text.length > errorTextMax ? `${text.slice(0, errorTextMax)}…` : text;
  return cut.replaceAll('\0', '\uFFFD').toWellFormed();
}
