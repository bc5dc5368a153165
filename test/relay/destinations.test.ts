import { describe, expect, test } from 'vitest';
import { PostcommitError } from '../../src/errors.ts';
import { Reject } from '../../src/index.ts';
import { listDestinations } from '../../src/outbox/operating/list-destinations.ts';
import { pauseDestination } from '../../src/outbox/operating/pause-destination.ts';
import type { Message } from '../../src/publishers/publisher.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const receivedIds = (publisher: ScriptedPublisher) => publisher.received.map(({ eventId }) => eventId);

async function failures(scenario: RelayScenario) {
  return scenario.db.query<{ attempt: number; target: string | null; code: string; error: string }>(
    'select attempt, target, code, error from postcommit.outbox_failures order by failed_at, target',
  );
}

const noHandlers = { handlers: {}, pollIntervalMs: 50 };

describe('a destination whose row is gone', () => {
  test(
    'is registered again by a relay that has it',
    withScenario(async (scenario) => {
      await scenario.relay('r', { ...noHandlers, destinations: { shop: new ScriptedPublisher() } });
      await scenario.db.query('delete from postcommit.outbox_destinations');
      await until(async () => (await listDestinations(scenario.db.pool, 'postcommit')).length === 1, {
        what: 'the destination is known again',
      });
      await pauseDestination(scenario.db.pool, 'postcommit', 'shop', 'a test');
    }),
  );
});

describe('routing', () => {
  test(
    'without a route an event goes to every destination, with its type as topic and its aggregate as key',
    withScenario(async (scenario) => {
      const [one, two] = [new ScriptedPublisher(), new ScriptedPublisher()];
      const relay = scenario.idleRelay('r', { ...noHandlers, destinations: { one, two: { publisher: two } } });
      const [id] = await scenario.emit([
        { aggregateId: '7', type: 'order.created', payload: { total: 9 }, headers: { tenant: 'é' } },
      ]);
      expect(await relay.runOnce()).toEqual({ delivered: 1, failed: 0, deadLettered: 0, complete: true });
      for (const { received } of [one, two]) {
        expect(received).toHaveLength(1);
        const message = received[0] as Message;
        expect(message).toMatchObject({ eventId: id, eventType: 'order.created', topic: 'order.created', key: '7' });
        expect(message.headers).toMatchObject({ tenant: 'é', 'event-id': id });
        expect(JSON.parse(message.body as string)).toMatchObject({ eventId: id, data: { total: 9 } });
        const text = Object.entries(message.headers).flat().join('') + message.body + message.key;
        expect(message.bytes).toBeGreaterThanOrEqual(Buffer.byteLength(text));
      }
      const [delivery] = await scenario.db.query('select targets from postcommit.outbox_deliveries');
      expect(delivery.targets).toEqual(['one', 'two']);
    }),
  );

  test(
    'a route chooses destination, topic, key and headers, also two topics of one destination, or nothing',
    withScenario(async (scenario) => {
      const [one, two] = [new ScriptedPublisher(), new ScriptedPublisher()];
      const relay = scenario.idleRelay('r', {
        pollIntervalMs: 50,
        handlers: { quiet: { ignore: () => {} } },
        destinations: { one, two },
        route: (event) => {
          if (event.type === 'quiet') return null;
          if (event.type === 'twice') return [{ to: 'one' }, { to: 'one', topic: 'copy', key: null }];
          return { to: 'two', topic: `t.${event.payload.region}`, key: 'k', headers: { region: event.payload.region } };
        },
      });
      await scenario.emit([
        { aggregateId: '1', type: 'quiet' },
        { aggregateId: '2', type: 'twice' },
        { aggregateId: '3', type: 'other', payload: { region: 'eu' } },
      ]);
      expect(await relay.runOnce()).toMatchObject({ delivered: 3 });
      expect(one.received.map(({ topic, key }) => [topic, key])).toEqual([
        ['twice', '2'],
        ['copy', null],
      ]);
      expect(two.received).toMatchObject([{ topic: 't.eu', key: 'k', headers: { region: 'eu' } }]);
      const deliveries = await scenario.db.query('select targets from postcommit.outbox_deliveries');
      expect(deliveries.map(({ targets }) => targets.sort().join()).sort()).toEqual([
        'ignore',
        'one:copy,one:twice',
        'two',
      ]);
    }),
  );

  test.each([
    ['without the topic that has the event', [{ to: 'customers', topic: 'b' }]],
    [
      'in another order',
      [
        { to: 'customers', topic: 'b' },
        { to: 'customers', topic: 'a' },
      ],
    ],
  ])('of several topics, each gets the event although the route answers %s the next time', (_how, second) =>
    withScenario(async (scenario) => {
      const customers = new ScriptedPublisher();
      let asked = 0;
      customers.outcomeOf = ({ topic }) =>
        topic === 'b' && asked === 1 ? { kind: 'failed', reason: 'not now' } : { kind: 'delivered' };
      const relay = scenario.idleRelay('r', {
        ...noHandlers,
        retry: { delaysMs: [1] },
        destinations: { customers },
        route: () => (++asked === 1 ? ['a', 'b'].map((topic) => ({ to: 'customers', topic })) : second),
      });
      await scenario.emit([{ aggregateId: '1' }]);
      const isSettled = async () => {
        await relay.runOnce();
        return (await scenario.queued()) === 0;
      };
      await until(isSettled, { what: 'it is delivered' });
      expect(customers.received.map(({ topic }) => topic)).toEqual(['a', 'b']);
    })(),
  );

  test(
    'what a route gets wrong is a failed attempt of that event, with a code and what to do',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const wrong: Record<string, unknown> = {
        throws: () => {
          throw new Error('no such region');
        },
        unknown: { to: 'evnts' },
        text: 'events',
        topic: { to: 'events', topic: 5 },
        key: { to: 'events', key: 5 },
        headers: { to: 'events', headers: { retries: 5 } },
        twice: [{ to: 'events' }, { to: 'events' }, { to: 'events' }],
        misspelt: { to: 'events', topc: 'orders' },
        promise: () => Promise.reject(new Error('not caught')),
      };
      const relay = scenario.idleRelay('r', {
        ...noHandlers,
        retry: { delaysMs: [60_000] },
        destinations: { events },
        route: (event) => {
          const answer = wrong[event.type];
          return (typeof answer === 'function' ? answer() : (answer ?? { to: 'events' })) as never;
        },
      });
      await scenario.emit([...Object.keys(wrong), 'fine'].map((type) => ({ aggregateId: type, type })));
      expect(await relay.runOnce()).toEqual({ delivered: 1, failed: 9, deadLettered: 0, complete: true });
      expect(events.received).toHaveLength(1);
      const found = await failures(scenario);
      const codes = found.map(({ code }) => code).sort();
      expect(codes).toEqual([...Array(8).fill('POSTCOMMIT_E_ROUTE_FAILED'), 'POSTCOMMIT_E_UNKNOWN_DESTINATION']);
      const texts = found.map(({ error }) => error).join('\n');
      for (const part of [
        'no such region',
        "Got 'evnts'. Known destinations: events",
        'The header retries',
        'The topic is 5',
        'the unknown property topc',
      ]) {
        expect(texts).toContain(part);
      }
    }),
  );

  test(
    'headers that are not strings become strings, and none can stand in for a fact or the content type',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const headers = {
        n: 5,
        yes: true,
        list: [1],
        nothing: null,
        'Event-Id': 'forged',
        'Content-Type': 'text/x',
        ok: 'é',
      };
      await scenario.db.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
         values ('thing', '1', 'scripted', '{}', $1)`,
        [JSON.stringify(headers)],
      );
      const route = () => ({ to: 'events', headers: { n: '6', 'EVENT-TYPE': 'forged' } });
      await scenario.idleRelay('r', { ...noHandlers, destinations: { events }, route }).runOnce();
      const [message] = events.received as [Message];
      expect(message.headers).toMatchObject({ n: '6', yes: 'true', list: '[1]', ok: 'é', 'event-id': message.eventId });
      for (const name of ['nothing', 'Event-Id', 'EVENT-TYPE', 'Content-Type']) {
        expect(message.headers).not.toHaveProperty(name);
      }
      expect(message.contentType).toBe('application/json');
    }),
  );

  test(
    'an event without a handler that is routed nowhere follows noHandler',
    withScenario(async (scenario) => {
      const relay = scenario.idleRelay('r', {
        ...noHandlers,
        noHandler: 'fail',
        destinations: { events: new ScriptedPublisher() },
        route: () => [],
      });
      await scenario.emit([{ aggregateId: '1' }]);
      expect(await relay.runOnce()).toEqual({ delivered: 0, failed: 0, deadLettered: 1, complete: true });
    }),
  );
});

describe('outcomes', () => {
  test(
    'ok, retry and reject are judged event by event, and what is behind a failed one of its key loses no attempt',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const ids = await scenario.emit([
        { aggregateId: 'a' },
        { aggregateId: 'b', type: 'fails' },
        { aggregateId: 'b' },
        { aggregateId: 'b' },
        { aggregateId: 'c', type: 'poison' },
        { aggregateId: 'c' },
        { aggregateId: 'd', key: null },
      ]);
      let failing = true;
      events.outcomeOf = ({ eventType }) => {
        if (eventType === 'fails' && failing) return { kind: 'failed', reason: 'leader moved' };
        if (eventType === 'poison') return { kind: 'rejected', reason: 'record too large' };
        return { kind: 'delivered' };
      };
      const relay = await scenario.relay('r', {
        ...noHandlers,
        destinations: { events },
        retry: { delaysMs: [200, 200, 200] },
      });
      await until(async () => (await failures(scenario)).some(({ target }) => target === 'events'), {
        what: 'it failed',
      });
      failing = false;
      await scenario.drained();
      await relay.stop();
      const order = receivedIds(events);
      expect(order.filter((id) => ids.slice(1, 4).includes(id))).toEqual(ids.slice(1, 4));
      expect(new Set(order)).toEqual(new Set(ids.filter((_, index) => index !== 4)));
      const attempts = await scenario.db.query(
        'select attempts, sum(upper(r) - lower(r))::integer as events from postcommit.outbox_deliveries, unnest(seqs) r group by 1',
      );
      // Only the one that failed needed a second attempt; its followers did not pay for it.
      expect(attempts.find(({ attempts }) => attempts > 1)).toMatchObject({ events: 1 });
      const [letter] = await scenario.db.query('select reason, error from postcommit.outbox_dead_letters');
      expect(letter).toMatchObject({ reason: 'rejected', error: expect.stringContaining('record too large') });
    }),
  );

  test(
    'progress is kept per target: what is done is not done again',
    withScenario(async (scenario) => {
      const [good, bad] = [new ScriptedPublisher(), new ScriptedPublisher()];
      let handled = 0;
      bad.outcomeOf = () => ({ kind: 'failed', reason: 'not now' });
      const relay = await scenario.relay('r', {
        pollIntervalMs: 50,
        handlers: { scripted: { count: () => ++handled } },
        destinations: { good, bad },
        retry: { delaysMs: [1, 1, 1, 1, 1] },
      });
      await scenario.emit([{ aggregateId: '1' }]);
      await until(() => bad.batches.length >= 3, { what: 'it was tried three times' });
      bad.outcomeOf = () => ({ kind: 'delivered' });
      await scenario.drained();
      await relay.stop();
      expect([good.received.length, bad.received.length, handled]).toEqual([1, 1, 1]);
    }),
  );

  test(
    'a receiver that says when to come again is obeyed',
    withScenario(async (scenario) => {
      const hook = new ScriptedPublisher();
      hook.outcomeOf = () => ({ kind: 'failed', reason: '429', retryAfterMs: 60_000 });
      const relay = scenario.idleRelay('r', { ...noHandlers, destinations: { hook }, retry: { delaysMs: [1, 1] } });
      await scenario.emit([{ aggregateId: '1' }]);
      await relay.runOnce();
      const [row] = await scenario.db.query(
        `select extract(epoch from available_at - now())::integer as seconds from postcommit.outbox_queue`,
      );
      expect(row.seconds).toBeGreaterThan(50);
    }),
  );

  test(
    'a serializer that throws is a failed attempt, one that throws Reject gives the event up',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const relay = scenario.idleRelay('r', {
        ...noHandlers,
        retry: { delaysMs: [60_000] },
        destinations: {
          events: {
            publisher: events,
            serializer: {
              serialize: async ({ type }) => {
                if (type === 'poison') throw new Reject('no schema for it');
                if (type === 'fails') throw new Error('registry is down');
                return type === 'nothing'
                  ? (undefined as never)
                  : { body: new Uint8Array([1, 2]), contentType: 'application/avro' };
              },
            },
          },
        },
      });
      const ids = await scenario.emit([
        { aggregateId: '1', type: 'poison' },
        { aggregateId: '2', type: 'fails' },
        { aggregateId: '3', type: 'nothing' },
        ...Array.from({ length: 20 }, () => ({ aggregateId: '4', type: 'fine' })),
      ]);
      expect(await relay.runOnce()).toEqual({ delivered: 20, failed: 2, deadLettered: 1, complete: true });
      expect(receivedIds(events)).toEqual(ids.slice(3));
      expect(events.received[0]).toMatchObject({ body: new Uint8Array([1, 2]), contentType: 'application/avro' });
      const codes = (await failures(scenario)).map(({ code }) => code).sort();
      expect(codes.filter((code) => code === 'POSTCOMMIT_E_SERIALIZER_FAILED')).toHaveLength(2);
    }),
  );

  test(
    'a publisher that throws is found out: the message that makes it throw fails, the others are delivered',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.outcomeOf = ({ eventType }) => {
        if (eventType === 'crash') throw new TypeError('undefined is not a topic');
        return { kind: 'delivered' };
      };
      const publish = events.publish.bind(events);
      events.publish = (batch, signal) => {
        if (batch.some(({ eventType }) => eventType === 'crash')) throw new TypeError('undefined is not a topic');
        return publish(batch, signal);
      };
      const relay = scenario.idleRelay('r', { ...noHandlers, retry: { delaysMs: [60_000] }, destinations: { events } });
      await scenario.emit([{ aggregateId: '1' }, { aggregateId: '2', type: 'crash' }, { aggregateId: '3' }]);
      expect(await relay.runOnce()).toEqual({ delivered: 2, failed: 1, deadLettered: 0, complete: true });
      expect((await failures(scenario))[0]).toMatchObject({
        target: 'events',
        code: 'POSTCOMMIT_E_PUBLISH_FAILED',
        error: expect.stringContaining('undefined is not a topic'),
      });
    }),
  );
});

describe('batches', () => {
  test(
    'one aggregate alone fills batches where the broker keeps order in them',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 50, batchesInFlightMax: 3 });
      events.tookMs = 2;
      const ids = await scenario.emitLine('hot', 1_000);
      await scenario.idleRelay('r', { ...noHandlers, destinations: { events } }).runOnce();
      expect(receivedIds(events)).toEqual(ids);
      expect(events.underWayMax).toBe(1); // No key in two batches at once.
      expect(Math.max(...events.batches)).toBe(50);
      expect(events.batches.length).toBeLessThan(100);
    }),
  );

  test(
    'where it does not, a batch has one event of a key at most; size, bytes and number under way are limits',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({
        keyRuns: false,
        batchSizeMax: 10,
        batchBytesMax: 4_000,
        batchesInFlightMax: 3,
      });
      events.tookMs = 1;
      const keysOf: number[] = [];
      const bytesOf: number[] = [];
      const publish = events.publish.bind(events);
      events.publish = (batch, signal) => {
        keysOf.push(batch.length - new Set(batch.map(({ key }) => key)).size);
        if (batch.length > 1) bytesOf.push(batch.reduce((sum, { bytes }) => sum + bytes, 0));
        return publish(batch, signal);
      };
      const ids = await scenario.emit(
        Array.from({ length: 600 }, (_, index) => ({
          aggregateId: String(index % 40),
          payload: { text: 'x'.repeat(index % 50 === 0 ? 6_000 : 200) },
        })),
      );
      await scenario.idleRelay('r', { ...noHandlers, destinations: { events } }).runOnce();
      expect(new Set(keysOf)).toEqual(new Set([0]));
      expect(Math.max(...bytesOf)).toBeLessThanOrEqual(4_000);
      expect(Math.max(...events.batches)).toBeLessThanOrEqual(10);
      expect(events.underWayMax).toBeLessThanOrEqual(3);
      expect(events.received).toHaveLength(600);
      for (let key = 0; key < 40; key++) {
        const inOrder = events.received.filter((message) => message.key === String(key)).map(({ eventId }) => eventId);
        expect(inOrder).toEqual(ids.filter((_, index) => index % 40 === key));
      }
    }),
  );
});

describe('start and stop', () => {
  test(
    'a destination that refuses the relay fails the start, and nothing stays open',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.connect = async () => {
        throw new PostcommitError('POSTCOMMIT_E_DESTINATION_REFUSED', 'SASL: wrong password.');
      };
      const relay = scenario.idleRelay('r', { ...noHandlers, destinations: { events } });
      await expect(relay.start()).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_DESTINATION_REFUSED',
        message: expect.stringMatching(/events.*wrong password/s),
      });
      expect(relay.stats().state).toBe('idle');
      expect(events.closes).toBe(1);
    }),
  );

  test(
    'and it is not listed then; one that an operator has paused may refuse, and the relay starts',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const relay = scenario.idleRelay('r', { ...noHandlers, destinations: { events } });
      const { connect } = events;
      events.connect = async () => {
        throw new PostcommitError('POSTCOMMIT_E_DESTINATION_REFUSED', 'SASL: wrong password.');
      };
      await expect(relay.start()).rejects.toThrow('wrong password');
      expect(await listDestinations(scenario.db.pool, 'postcommit')).toEqual([]);
      events.connect = connect;
      await relay.start();
      await relay.stop();
      await pauseDestination(scenario.db.pool, 'postcommit', 'events', 'new password');
      events.connect = async () => {
        throw new PostcommitError('POSTCOMMIT_E_DESTINATION_REFUSED', 'SASL: wrong password.');
      };
      await relay.start();
      expect(relay.stats().state).toBe('running');
    }),
  );

  test(
    'one whose connect() never ends holds neither the start up for long, nor the events of others, nor a stop',
    withScenario(async (scenario) => {
      const [hole, events] = [new ScriptedPublisher(), new ScriptedPublisher()];
      hole.connect = () => new Promise(() => {});
      hole.health = () => new Promise(() => {});
      await scenario.emit([{ aggregateId: '1' }]);
      const begun = performance.now();
      const relay = await scenario.relay('r', {
        ...noHandlers,
        destinations: { hole, events },
        route: () => ({ to: 'events' }),
      });
      await until(() => events.received.length === 1, { what: 'the other one has its event' });
      expect(performance.now() - begun).toBeLessThan(6_000);
      expect(await listDestinations(scenario.db.pool, 'postcommit')).toMatchObject([
        { name: 'events', state: 'up' },
        { name: 'hole', state: 'down', error: 'no answer within 3000 ms' },
      ]);
      const stopping = performance.now();
      await relay.stop();
      expect(performance.now() - stopping).toBeLessThan(5_000);
    }),
  );

  test(
    'one that is down does not: its events wait, and are sent when it is up',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.mood = 'away';
      const ids = await scenario.emitLine('a', 5);
      const relay = await scenario.relay('r', {
        ...noHandlers,
        destinations: { events: { publisher: events, probeDelayMs: 50 } },
      });
      await until(() => relay.stats().unavailable === 5, { what: 'all wait' });
      events.mood = 'up';
      await until(() => events.received.length === 5, { what: 'all arrived' });
      expect(receivedIds(events)).toEqual(ids);
    }),
  );

  test(
    'stop() lets the batch under way finish, gives the rest back, and closes the publisher; start() connects again',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 5, batchesInFlightMax: 1 });
      events.tookMs = 100;
      const ids = await scenario.emitLine('a', 40);
      const relay = await scenario.relay('r', { ...noHandlers, destinations: { events } });
      await until(() => events.underWay > 0, { what: 'a batch is under way' });
      await relay.stop();
      const sent = events.received.length;
      expect(sent).toBeGreaterThan(0);
      expect(sent).toBeLessThan(40);
      expect(events.closes).toBe(1);
      const [left] = await scenario.db.query(
        'select count(*)::integer as n, sum(attempts)::integer as attempts, count(claimed_by)::integer as leased from postcommit.outbox_queue',
      );
      expect(left).toEqual({ n: 40 - sent, attempts: 0, leased: 0 });
      await relay.start();
      await scenario.drained();
      expect(events.connects).toBe(2);
      expect(receivedIds(events)).toEqual(ids);
    }),
  );

  test(
    'a publisher that never answers does not hold stop() past its deadline',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.publish = () => new Promise(() => {});
      await scenario.emitLine('a', 3);
      const relay = await scenario.relay('r', { ...noHandlers, stopTimeoutMs: 200, destinations: { events } });
      await until(() => relay.stats().inFlight === 3, { what: 'they are under way' });
      const begun = performance.now();
      await relay.stop();
      expect(performance.now() - begun).toBeLessThan(5_000);
      const [left] = await scenario.db.query(
        'select count(*)::integer as n, sum(attempts)::integer as a from postcommit.outbox_queue',
      );
      expect(left).toEqual({ n: 3, a: 0 });
    }),
  );
});
