import type { DeliveredEvent } from './delivered-event.ts';
import { factHeaders, isoTime, traceIdOf } from './event-facts.ts';
import type { Serializer } from './serializer.ts';

/**
 * The default wire format: a JSON object with the facts about the event and the payload as `data`. The same facts are
 * headers. Its schema is docs/wire-format/envelope.schema.json.
 *
 * The payload is the text that the database has, so numbers of any size keep all digits.
 *
 * @example
 * import { envelope } from 'postcommit';
 *
 * // { "eventId": "…", "eventType": "order.created", "eventSeq": "7", "schemaVersion": 1,
 * //   "occurredAt": "2026-01-31T12:00:00.000Z", "traceId": null, "aggregate": { "type": "order", "id": "42" },
 * //   "data": { "total": 3 } }
 * const serializer = envelope();
 */
export function envelope(): Serializer {
  return { serialize };
}

const contentType = 'application/json';

function serialize(event: DeliveredEvent) {
  const traceId = traceIdOf(event);
  const { type, id } = event.aggregate;
  const body = `{"eventId":"${event.id}","eventType":${JSON.stringify(event.type)},"eventSeq":"${event.seq}","schemaVersion":${
    event.schemaVersion
  },"occurredAt":"${isoTime(event.occurredAtMs)}","traceId":${
    traceId === undefined ? 'null' : `"${traceId}"`
  },"aggregate":{"type":${JSON.stringify(type)},"id":${JSON.stringify(id)}},"data":${event.payloadJson}}`;
  return { body, contentType, headers: factHeaders(event, traceId) };
}
