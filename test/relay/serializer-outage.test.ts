import { describe, expect, test } from 'vitest';
import { type DeliveredEvent, envelope, type Serializer, Unavailable } from '../../src/index.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const soon = { probeDelayMs: 50, probeDelayMsMax: 100 };
const many = (count: number, keys: number, type = 'order') =>
  Array.from({ length: count }, (_, n) => ({ aggregateId: `${type}${n % keys}`, type, payload: { n } }));

/** A serializer that needs a server. `mood`: what that server does. */
class DependentSerializer implements Serializer {
  mood: 'up' | 'down' | 'silent' = 'up';
  /** What it can serialize without the server. */
  knows: (event: DeliveredEvent) => boolean = () => false;
  asked = 0;
  probes = 0;
  readonly #envelope = envelope();

  serialize(...given: Parameters<Serializer['serialize']>) {
    return this.knows(given[0]) ? this.#envelope.serialize(...given) : this.#ask(...given);
  }

  async health(): Promise<void> {
    this.probes++;
    if (this.mood === 'down') throw new Error('registry: connection refused');
    if (this.mood === 'silent') await new Promise(() => {});
  }

  async #ask(...given: Parameters<Serializer['serialize']>) {
    this.asked++;
    await new Promise(setImmediate);
    if (this.mood === 'silent') await new Promise(() => {});
    if (this.mood === 'down') throw new Unavailable('registry: connection refused');
    return this.#envelope.serialize(...given);
  }
}

/** The numbers of the events of each key, in the order of their arrival. */
function arrivals({ received }: ScriptedPublisher): Record<string, number[]> {
  const byKey: Record<string, number[]> = {};
  for (const { key, body } of received) {
    byKey[String(key)] ??= [];
    byKey[String(key)]?.push(JSON.parse(String(body)).data.n);
  }
  return byKey;
}

const attempts = 'select count(*)::integer as n from postcommit.outbox_failures';

describe('a serializer that is unavailable costs no attempt (G6)', () => {
  test.each(['down', 'silent'] as const)('%s when the relay starts, then up: all arrive, in order per key', (mood) =>
    withScenario(async (scenario) => {
      const publisher = new ScriptedPublisher();
      const serializer = new DependentSerializer();
      serializer.mood = mood;
      await scenario.emit(many(300, 7));
      const relay = scenario.idleRelay('r', {
        handlers: {},
        pollIntervalMs: 50,
        retry: { delaysMs: [10] },
        destinations: { events: { publisher, serializer, publishTimeoutMs: 500, ...soon } },
      });
      const told: string[] = [];
      relay.on('destinationDown', ({ error }) => told.push(error));
      await relay.start();
      await until(() => told.length > 0, { what: 'the outage is noticed' });
      const { probes } = serializer;
      await until(() => serializer.probes > probes + 1, { what: 'it was probed' });
      expect(told).toEqual([expect.stringContaining('The serializer: ')]);
      expect(publisher.received).toEqual([]);
      serializer.mood = 'up';
      await until(() => relay.stats().delivered === 300, { what: 'all have arrived', timeoutMs: 20_000 });
      for (const numbers of Object.values(arrivals(publisher)))
        expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
      expect(publisher.received).toHaveLength(300);
      expect((await scenario.db.query(attempts))[0].n).toBe(0);
      expect(relay.stats()).toMatchObject({ failed: 0, deadLettered: 0 });
    })(),
  );

  test(
    'while it can still serialize other events: they do not make it look like the fault of the one that it cannot',
    withScenario(async (scenario) => {
      const publisher = new ScriptedPublisher();
      const serializer = new DependentSerializer();
      serializer.mood = 'down';
      serializer.knows = ({ type }) => type === 'known';
      const relay = await scenario.relay('r', {
        handlers: {},
        pollIntervalMs: 50,
        retry: { delaysMs: [10] },
        destinations: { events: { publisher, serializer, ...soon } },
      });
      const [id] = await scenario.emit([{ aggregateId: 'new', type: 'new', payload: { n: 0 } }]);
      for (let round = 0; round < 6; round++) {
        await scenario.emit(many(5, 5, 'known'));
        const { asked, probes } = serializer;
        await until(() => serializer.asked > asked || serializer.probes > probes, { what: 'it was asked again' });
      }
      expect((await scenario.db.query(attempts))[0].n).toBe(0);
      serializer.mood = 'up';
      await until(() => relay.stats().delivered === 31, { what: 'all have arrived', timeoutMs: 20_000 });
      expect(publisher.received.filter(({ eventId }) => eventId === id)).toHaveLength(1);
      expect(relay.stats()).toMatchObject({ failed: 0, deadLettered: 0 });
    }),
  );

  test(
    'events of a key behind the one that it cannot serialize do not pass it while the outage is examined',
    withScenario(async (scenario) => {
      const publisher = new ScriptedPublisher();
      const serializer = new DependentSerializer();
      serializer.mood = 'down';
      // The second event of the key could be sent at once.
      serializer.knows = ({ payload }) => (payload as { n: number }).n > 0;
      const relay = await scenario.relay('r', {
        handlers: {},
        pollIntervalMs: 50,
        destinations: { events: { publisher, serializer, ...soon } },
      });
      await scenario.emit(many(20, 1));
      await until(() => serializer.probes > 3, { what: 'it was probed' });
      expect(publisher.received).toEqual([]);
      serializer.mood = 'up';
      await until(() => relay.stats().delivered === 20, { what: 'all have arrived', timeoutMs: 20_000 });
      expect(arrivals(publisher)).toEqual({ order0: Array.from({ length: 20 }, (_, n) => n) });
      expect((await scenario.db.query(attempts))[0].n).toBe(0);
    }),
  );

  test(
    'one that is unavailable for a single event, and healthy, is the fault of that event after a while; what is behind it waits',
    withScenario(async (scenario) => {
      const publisher = new ScriptedPublisher();
      const serializer: Serializer = {
        serialize(event, binding) {
          if (event.type === 'odd') throw new Unavailable('never');
          return envelope().serialize(event, binding);
        },
        // Other events are sent meanwhile.
        async health() {
          for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
        },
      };
      const relay = await scenario.relay('r', {
        handlers: {},
        pollIntervalMs: 50,
        retry: { delaysMs: [10] },
        destinations: { events: { publisher, serializer, ...soon } },
      });
      const deadLetters: number[] = [];
      publisher.outcomeOf = ({ key }) => {
        if (key === 'odd') deadLetters.push(relay.stats().deadLettered);
        return { kind: 'delivered' };
      };
      await scenario.emit(['odd', 'behind', 'behind'].map((type) => ({ aggregateId: 'odd', type })));
      let others = 0;
      const isGivenUp = async () => {
        await scenario.emit(many(1, 1));
        others++;
        await until(() => relay.stats().delivered >= others, { what: 'others arrive' });
        return relay.stats().deadLettered === 1;
      };
      await until(isGivenUp, { what: 'it is a dead letter', timeoutMs: 20_000 });
      await until(() => deadLetters.length === 2, { what: 'those behind it arrive' });
      expect(deadLetters).toEqual([1, 1]);
    }),
  );
});
