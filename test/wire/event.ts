import type { ClaimedRow } from '../../src/outbox/delivering/claim.ts';
import { DeliveredEvent } from '../../src/wire/delivered-event.ts';

export const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
export const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;

/** An event as the relay has it, with the text of its payload. */
export function deliveredEvent(row: Partial<ClaimedRow> = {}): DeliveredEvent {
  const payloadJson = row.payloadJson ?? '{"total":3}';
  const full: ClaimedRow = {
    seq: '7',
    key: '1',
    queue: 'default',
    attempts: 0,
    takenOver: false,
    takeovers: 0,
    done: [],
    owed: [],
    replayId: null,
    id: '0199d0a0-6f00-7000-8000-000000000001',
    aggregateType: 'order',
    aggregateId: '42',
    type: 'order.created',
    schemaVersion: 2,
    orderingKey: null,
    headersJson: '{}',
    createdAtMs: Date.UTC(2026, 0, 31, 12),
    shelved: [],
    ...row,
    payloadJson,
  };
  return new DeliveredEvent(full, payloadJson);
}
