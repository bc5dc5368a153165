import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { kafka } from '../../src/publishers/kafka.ts';
import { kafkaTopic, outOfOrder } from '../support/broker-contents.ts';
import { endChild, startChild } from '../support/child.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const server = fileService('kafka');

const numbered = (count: number, aggregates: number, payload: (index: number) => object = () => ({})) =>
  Array.from({ length: count }, (_, index) => ({
    aggregateId: `a${index % aggregates}`,
    payload: { n: Math.floor(index / aggregates), ...payload(index) },
  }));

async function undelivered(scenario: RelayScenario): Promise<number> {
  const [row] = await scenario.db.query(
    `select ((select count(*) from postcommit.outbox_queue) + (select count(*) from postcommit.outbox_shelf))::integer as n`,
  );
  return row.n;
}

describe('draining into Kafka', () => {
  test(
    'one event of 2 MB among 1,000 is a dead letter with the broker’s reason; the 999 arrive in order',
    withScenario(async (scenario) => {
      const topic = await kafkaTopic(server.url);
      const outbox = createOutbox({ db: fromPg(scenario.db.pool), payloadBytesMax: 4_000_000 });
      const large = 'x'.repeat(2_000_000);
      const events = numbered(1_000, 1_000, (index) => (index === 500 ? { large } : {}));
      const ids = await outbox.transaction((_tx, emit) =>
        emit(
          events.map(({ aggregateId, payload }) => ({
            type: 'scripted',
            // One hot aggregate around the large one, to see that the order is kept where it hurts.
            aggregate: ['thing', Number(aggregateId.slice(1)) % 4 === 0 ? 'hot' : aggregateId] as const,
            payload,
          })),
        ),
      );
      const relay = await scenario.relay('r', {
        handlers: {},
        destinations: { events: kafka({ brokers: [server.url] }) },
        route: () => ({ to: 'events', topic: topic.name }),
      });
      await until(async () => (await undelivered(scenario)) === 0, { what: 'all is done', timeoutMs: 40_000 });
      const arrivals = await topic.arrivals(999);
      expect(arrivals.map(({ id }) => id).sort()).toEqual(ids.filter((_, index) => index !== 500).sort());
      const hot = arrivals.filter(({ aggregate }) => aggregate === 'hot').map(({ id }) => id);
      expect(hot).toEqual(ids.filter((_, index) => index % 4 === 0 && index !== 500));
      const letters = await scenario.db.query(
        `select e.id, d.reason, d.attempts, d.error from postcommit.outbox_dead_letters d
           join postcommit.outbox_events e using (seq)`,
      );
      expect(letters).toEqual([{ id: ids[500], reason: 'rejected', attempts: 1, error: expect.any(String) }]);
      expect(letters[0]?.error).toMatch(/too large|larger|bytes/i);
      expect(relay.stats()).toMatchObject({ delivered: 999, deadLettered: 1, failed: 0 });
    }),
    120_000,
  );

  test(
    'a relay killed in the middle: nothing lost, order kept, repetitions carry the same id and are bounded',
    withScenario(async (scenario) => {
      const topic = await kafkaTopic(server.url);
      const prefetchMax = 1_000;
      const count = 20_000;
      const events = numbered(count, 100);
      for (let at = 0; at < count; at += 2_000) await scenario.emit(events.slice(at, at + 2_000));
      const child = startChild('test/faults/kafka-relay.child.ts', [
        scenario.db.url,
        server.url,
        topic.name,
        String(prefetchMax),
      ]);
      try {
        await child.next(({ delivered }) => delivered > 1_000, 60_000);
        child.kill('SIGKILL');
        await child.exited;
        const left = await undelivered(scenario);
        expect(left).toBeGreaterThan(1_000); // It was killed in the middle, and not at the end.
        await scenario.relay('second', {
          handlers: {},
          leaseMs: 2_000,
          destinations: { events: kafka({ brokers: [server.url] }) },
          route: () => ({ to: 'events', topic: topic.name }),
        });
        await until(async () => (await undelivered(scenario)) === 0, { what: 'all is done', timeoutMs: 60_000 });
        const arrivals = await topic.arrivals(count);
        expect(new Set(arrivals.map(({ id }) => id)).size).toBe(count);
        expect(outOfOrder(arrivals)).toEqual([]);
        expect(arrivals.length - count).toBeLessThanOrEqual(prefetchMax);
        const known = await scenario.db.query('select id from postcommit.outbox_events');
        expect(new Set(known.map(({ id }) => id))).toEqual(new Set(arrivals.map(({ id }) => id)));
      } finally {
        await endChild(child);
      }
    }),
    180_000,
  );
});
