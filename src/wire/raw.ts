import type { DeliveredEvent } from './delivered-event.ts';
import { factHeaders, traceIdOf } from './event-facts.ts';
import type { Serializer } from './serializer.ts';

/**
 * The payload alone is the body, as the JSON text that the database has; everything else is in the headers: `event-id`,
 * `event-type`, `schema-version`, `occurred-at`, `aggregate-type`, `aggregate-id`, `event-seq` and, where there is one, `event-key` and `trace-id`.
 *
 * @example
 * import { raw } from 'postcommit';
 *
 * const serializer = raw();
 */
export function raw(): Serializer {
  return { serialize };
}

function serialize(event: DeliveredEvent) {
  return { body: event.payloadJson, contentType: 'application/json', headers: factHeaders(event, traceIdOf(event)) };
}
