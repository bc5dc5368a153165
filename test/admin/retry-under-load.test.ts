import { expect, test } from 'vitest';
import type { DeliveredEvent } from '../../src/index.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

test('operators who retry while relays deliver lose nothing and break no order', async () => {
  const random = seededRandom();
  const scene = await Scene.create();
  const aggregates = Array.from({ length: 12 }, (_, i) => String(i));
  const expected = new Map<string, string[]>(aggregates.map((id) => [id, []]));
  const delivered = new Map<string, string[]>(aggregates.map((id) => [id, []]));
  const work = (event: DeliveredEvent) => {
    if (random.chance(0.15)) throw new Error('bad luck');
    delivered.get(event.aggregate.id)?.push(event.id);
  };
  // Every failure holds its aggregate, until one of two operators retries it; no event is given a second attempt before.
  const options = { handlers: { 'order.created': { work } }, poison: 'block' as const, retry: { delaysMs: [] } };
  const relays = await Promise.all(['a', 'b', 'c'].map((name) => scene.relay({ ...options, name, batchSizeMax: 20 })));

  let over = false;
  const operators = [0, 1].map(async () => {
    let count = 0;
    while (!over) count += (await scene.admin.retry({ all: true })).count;
    return count;
  });
  let emitted = 0;
  for (let round = 0; round < 60; round++) {
    const events = Array.from({ length: random.integer(1, 12) }, () => ({
      aggregate: ['order', random.pick(aggregates)] as const,
    }));
    const ids = await scene.emit(events);
    for (const [i, { aggregate }] of events.entries()) expected.get(aggregate[1])?.push(ids[i] as string);
    emitted += ids.length;
  }
  await until(async () => [...delivered.values()].flat().length >= emitted, {
    timeoutMs: 40_000,
    what: `all ${emitted} events are delivered`,
  });
  over = true;
  const retried = (await Promise.all(operators)).reduce((sum, count) => sum + count, 0);
  await scene.untilStatus('SENT', emitted);
  expect(delivered).toEqual(expected);
  expect(retried).toBe(relays.reduce((sum, relay) => sum + relay.stats().deadLettered, 0));
  expect(retried).toBeGreaterThan(10);
  await scene.close();
});
