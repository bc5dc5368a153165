import type { DeadLetterReason } from './intake.ts';

/** Headers by lower-case name. Of a list the last value counts; non-strings are stringified. */
export function lowerCaseHeaders(given: Readonly<Record<string, unknown>> | undefined): Record<string, string> {
  // Without a prototype: a header may be named __proto__.
  const headers: Record<string, string> = Object.create(null);
  for (const [name, value] of Object.entries(given ?? {})) {
    const one = Array.isArray(value) ? value.at(-1) : value;
    if (one === undefined || one === null) continue;
    headers[name.toLowerCase()] = typeof one === 'object' && !Buffer.isBuffer(one) ? JSON.stringify(one) : String(one);
  }
  return headers;
}

/** What a dead letter carries besides its own headers. */
export function deadLetterHeaders({ reason, attempts }: DeadLetterReason): Record<string, string> {
  return {
    'dead-letter-reason': reason,
    'dead-letter-attempts': String(attempts),
    'dead-letter-at': new Date().toISOString(),
  };
}
