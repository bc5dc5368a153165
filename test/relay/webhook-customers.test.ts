import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { webhook } from '../../src/publishers/webhook.ts';
import { Receiver } from '../publishers/webhook-receiver.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

/** All defaults but one: the receivers of these tests are on loopback. */
const customers = () => webhook({ secret: null, allowPrivateAddresses: true });

interface Customer {
  receiver: Receiver;
  /** Events by the time they took from their emit to their arrival. */
  latenciesMs: number[];
}

async function customer(answerMs = 0): Promise<Customer> {
  const receiver = await Receiver.forTest();
  const latenciesMs: number[] = [];
  receiver.answer = async ({ body }, response) => {
    const { data } = JSON.parse(body.toString());
    latenciesMs.push(performance.now() - data.emittedAt);
    if (answerMs > 0) await sleep(answerMs, undefined, { ref: false });
    response.writeHead(204).end();
  };
  return { receiver, latenciesMs };
}

const route = ({ payload }: { payload: { url: string } }) => ({ to: 'customers', topic: payload.url });

async function emitTo(scenario: RelayScenario, { receiver }: Customer, name: string, count: number): Promise<void> {
  const payload = { url: receiver.url('/hooks'), emittedAt: performance.now() };
  await scenario.emit(Array.from({ length: count }, (_, n) => ({ aggregateId: `${name}${n}`, payload })));
}

/** One event after the other, at random moments. Returns the slowest, in milliseconds. */
async function trickle(scenario: RelayScenario, to: Customer, count: number): Promise<number> {
  const before = to.latenciesMs.length;
  for (let n = 0; n < count; n++) {
    await emitTo(scenario, to, `trickle-${before}-${n}`, 1);
    await sleep(20 + Math.random() * 20);
  }
  const all = before + count;
  await until(() => to.latenciesMs.length >= all, { what: 'all of them have arrived', timeoutMs: 30_000 });
  return Math.max(...to.latenciesMs.slice(before));
}

describe('webhooks to URLs from the route, at default settings', () => {
  test(
    'a customer that never answers delays no other, and only the events that were sent to it lose an attempt',
    withScenario(async (scenario) => {
      const [hanging, healthy] = [await customer(), await customer()];
      hanging.receiver.freeze();
      const relay = await scenario.relay('r', { handlers: {}, destinations: { customers: customers() }, route });
      const told: string[] = [];
      relay.on('destinationDown', ({ error }) => told.push(error));
      await emitTo(scenario, hanging, 'hanging', 500);
      await until(() => hanging.receiver.connections > 0, { what: 'its first events are under way' });
      expect(await trickle(scenario, healthy, 40)).toBeLessThan(2_000);
      // Until the first requests have run into their time limit.
      await until(() => relay.stats().failed > 0 || told.length > 0, { what: 'one has failed', timeoutMs: 15_000 });
      expect(await trickle(scenario, healthy, 20)).toBeLessThan(2_000);
      expect(told).toEqual([]);
      const failures = await scenario.db.query<{ error: string }>('select error from postcommit.outbox_failures');
      expect(failures.length).toBeGreaterThan(0);
      expect(failures.length).toBeLessThanOrEqual(hanging.receiver.connections);
      for (const { error } of failures) expect(error).toContain('did not answer');
      // What waits for the customer does not go round and round.
      expect(relay.stats().claimed).toBeLessThan(5_000);
    }),
  );

  test(
    'when it answers again, all of its events arrive, each once',
    withScenario(async (scenario) => {
      const hanging = await customer();
      hanging.receiver.freeze();
      const relay = await scenario.relay('r', {
        handlers: {},
        destinations: { customers: webhook({ secret: null, allowPrivateAddresses: true, timeoutMs: 1_000 }) },
        route,
        retry: { delaysMs: [100, 100, 100] },
      });
      await emitTo(scenario, hanging, 'hanging', 100);
      await until(() => relay.stats().released > 0, { what: 'some went back' });
      hanging.receiver.thaw();
      hanging.receiver.answer = (_, response) => response.writeHead(204).end();
      await until(() => relay.stats().delivered === 100, { what: 'all have arrived', timeoutMs: 30_000 });
      expect(relay.stats().deadLettered).toBe(0);
      expect(new Set(hanging.receiver.requests.map(({ headers }) => headers['webhook-id'])).size).toBe(100);
    }),
  );

  test(
    'one that answers after 3 s does not make the destination a slow one for all others',
    withScenario(async (scenario) => {
      const [slow, healthy] = [await customer(3_000), await customer()];
      const relay = await scenario.relay('r', {
        handlers: { other: { ignore: () => {} } },
        destinations: { customers: customers() },
        route,
      });
      await emitTo(scenario, slow, 'slow', 100);
      await until(() => slow.receiver.requests.length >= 10, { what: 'it is busy' });
      // For longer than the 2 s after which a destination counts as stalled.
      for (let round = 0; round < 3; round++) expect(await trickle(scenario, healthy, 35)).toBeLessThan(800);
      expect(relay.stats().unavailable).toBe(0);
      expect(relay.stats().failed).toBe(0);
      expect(slow.receiver.atOnceMost).toBeLessThanOrEqual(10);
      await until(() => slow.receiver.requests.length >= 20, { what: 'the slow one continues', timeoutMs: 10_000 });
    }),
  );

  test(
    'a burst for one customer is sent at its full pace, and others need not wait for its end',
    withScenario(async (scenario) => {
      const [busy, healthy] = [await customer(40), await customer()];
      const relay = await scenario.relay('r', { handlers: {}, destinations: { customers: customers() }, route });
      await emitTo(scenario, busy, 'busy', 1_000);
      await until(() => busy.receiver.requests.length >= 10, { what: 'it has begun' });
      const begunAt = performance.now();
      expect(await trickle(scenario, healthy, 20)).toBeLessThan(1_500);
      await until(() => relay.stats().delivered === 1_020, { what: 'all have arrived', timeoutMs: 25_000 });
      // Ten at a time, 40 ms each: 4 s at the least.
      expect(performance.now() - begunAt).toBeLessThan(20_000);
    }),
  );
});
