import { describe, expect, test } from 'vitest';
import { deduplicationId } from '../../src/relay/deliver/destinations/deduplication-id.ts';
import type { Leg } from '../../src/relay/deliver/destinations/leg.ts';
import { deliveredEvent } from '../wire/event.ts';

const leg = (to: string, topic: string): Leg => ({
  target: to,
  to,
  topic,
  key: null,
  headers: undefined,
  exchange: undefined,
});
const event = deliveredEvent();

describe('the deduplication id', () => {
  test('is the same for a target whatever name its progress is kept by, and another for each destination and topic', () => {
    const first = deduplicationId(event, leg('events', 'shop.orders'));
    expect(first).toMatch(new RegExp(`^${event.id}\\.[0-9a-f]{16}$`));
    expect(deduplicationId(event, { ...leg('events', 'shop.orders'), target: 'events:shop.orders' })).toBe(first);
    const others = [leg('events', 'shop.audit'), leg('audit', 'shop.orders'), leg('event', 's:shop.orders')];
    expect(new Set([first, ...others.map((other) => deduplicationId(event, other))]).size).toBe(4);
  });

  test('is another for each replay', () => {
    const ids = [null, '1785000000000001', '1785000000000002'].map((replayId) =>
      deduplicationId(deliveredEvent({ replayId }), leg('events', 'shop.orders')),
    );
    expect(ids).toEqual([ids[0], `${ids[0]}.1785000000000001`, `${ids[0]}.1785000000000002`]);
  });

  test('fits every broker, whatever the topic', () => {
    const replayed = deliveredEvent({ replayId: '1785000000000001' });
    for (const topic of ['', 'ü 注文', 'x'.repeat(10_000), 'line\r\nbreak']) {
      expect(deduplicationId(replayed, leg('events', topic))).toMatch(/^[A-Za-z0-9.-]{1,80}$/);
    }
  });

  test('does not change when more topics are in use than it keeps hashes of', () => {
    const before = deduplicationId(event, leg('events', 'first'));
    for (let n = 0; n < 3_000; n++) deduplicationId(event, leg('events', `topic ${n}`));
    expect(deduplicationId(event, leg('events', 'first'))).toBe(before);
  });
});
