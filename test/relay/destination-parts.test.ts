import { describe, expect, test } from 'vitest';
import type { Publisher } from '../../src/publishers/publisher.ts';
import { DestinationParts } from '../../src/relay/deliver/destinations/destination-parts.ts';
import type { Leg } from '../../src/relay/deliver/destinations/leg.ts';

const leg = (topic: string): Leg => ({
  target: 'd',
  to: 'd',
  topic,
  key: null,
  headers: undefined,
  exchange: undefined,
});

function scene(of: (topic: string) => string | undefined) {
  const asked: string[] = [];
  const parts = {
    inFlightMax: 1,
    of(topic: string) {
      asked.push(topic);
      return of(topic);
    },
  };
  return { asked, parts: new DestinationParts({ parts } as unknown as Publisher, () => 10) };
}

describe('the name of a part', () => {
  test('is asked for once per topic, not once per message', () => {
    const { asked, parts } = scene((topic) => topic.slice(0, 1));
    for (let n = 0; n < 100; n++) expect(parts.nameOf(leg(n % 2 === 0 ? 'ab' : 'cd'))).toBe(n % 2 === 0 ? 'a' : 'c');
    expect(asked).toEqual(['ab', 'cd']);
  });

  test('is remembered for a bounded number of topics', () => {
    const { asked, parts } = scene((topic) => topic);
    for (let n = 0; n < 1_001; n++) parts.nameOf(leg(`t${n}`));
    parts.nameOf(leg('t1000'));
    expect(asked).toHaveLength(1_001);
    parts.nameOf(leg('t0'));
    expect(asked).toHaveLength(1_002);
  });

  test('is none where the publisher throws', () => {
    const { parts } = scene(() => {
      throw new Error('no URL');
    });
    expect(parts.nameOf(leg('x'))).toBeUndefined();
  });
});
