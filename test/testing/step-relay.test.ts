import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  createOutbox,
  createRelay,
  fromPg,
  type Outbox,
  type OutboxEvent,
  type RelayOptions,
} from '../../src/index.ts';
import {
  createTestSchema,
  publisherConformance,
  RecordingPublisher,
  stepRelay,
  type TestSchema,
  testMessage,
} from '../../src/testing/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let database: TestDatabase;
let temporary: TestSchema;
let outbox: Outbox<pg.PoolClient>;

beforeAll(async () => {
  database = await createTestDatabase({ migrate: false });
});

afterAll(() => database.close());

beforeEach(async () => {
  temporary = await createTestSchema({ connectionString: database.url });
  outbox = createOutbox({ db: fromPg<pg.PoolClient>(database.pool), schema: temporary.schema });
  return () => temporary.drop();
});

const relayOf = (options: RelayOptions) =>
  createRelay({ connectionString: database.url, schema: temporary.schema, logger: false, ...options });

const created = (id: string, more: Partial<OutboxEvent> = {}): OutboxEvent => ({
  type: 'order.created',
  aggregate: ['order', id],
  payload: { id },
  ...more,
});

const emit = (...events: OutboxEvent[]) => outbox.transaction((_tx, emitAll) => emitAll(events));

describe('stepRelay', () => {
  it('returns what happened to each event, and makes retries and delayed events due', async () => {
    const calls: string[] = [];
    const relay = relayOf({
      retry: { delaysMs: [3_600_000] },
      handlers: {
        'order.created': {
          book: ({ aggregate: { id } }) => {
            calls.push(id);
            if (id === 'bad') throw new Error('no stock');
          },
        },
      },
    });
    const [good, bad, late] = await emit(
      created('good'),
      created('bad', { attemptsMax: 2 }),
      created('late', { delayMs: 3_600_000 }),
    );
    const first = await stepRelay(relay);
    expect(first).toMatchObject({
      delivered: [{ eventId: good, attempt: 1, targets: ['book'] }],
      failed: [{ eventId: bad, attempt: 1, error: expect.stringContaining('no stock') }],
      deadLettered: [],
      unavailable: [],
      complete: true,
    });
    // Nothing is due: the clock of the database has not moved by an hour.
    expect(await stepRelay(relay)).toEqual({
      delivered: [],
      failed: [],
      deadLettered: [],
      unavailable: [],
      complete: true,
    });
    const third = await stepRelay(relay, { makeDue: outbox.admin });
    expect(third).toMatchObject({
      delivered: [{ eventId: late }],
      failed: [],
      deadLettered: [{ eventId: bad, attempt: 2 }],
    });
    expect(calls.sort()).toEqual(['bad', 'bad', 'good', 'late']);
    expect(relay.stats().state).toBe('idle');
    expect(relay.listenerCount('delivered')).toBe(0);
  });

  it('refuses options that it does not know', async () => {
    const relay = relayOf({ handlers: { made: { see: () => {} } } });
    await expect(stepRelay(relay, { makedue: outbox.admin } as never)).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
    });
  });
});

describe('RecordingPublisher', () => {
  it('has the messages of a relay, as routed and serialized', async () => {
    const broker = new RecordingPublisher();
    const route = ({ type }: { type: string }) => ({
      to: 'events',
      topic: type === 'order.created' ? 'orders' : 'rest',
    });
    const relay = relayOf({ destinations: { events: broker }, route });
    const ids = await emit(created('1'), created('1', { type: 'order.paid' }));
    expect((await stepRelay(relay)).delivered.map(({ eventId }) => eventId)).toEqual(ids);
    expect(broker.messages.map(({ topic, eventId, key }) => [topic, eventId, key])).toEqual([
      ['orders', ids[0], '1'],
      ['rest', ids[1], '1'],
    ]);
    expect(broker.bodies('rest')).toMatchObject([{ eventType: 'order.paid', data: { id: '1' } }]);
    broker.clear();
    expect([broker.messages, broker.attempts, broker.bodies()]).toEqual([[], [], []]);
  });

  it('fails as told, and delivers the retry', async () => {
    const broker = new RecordingPublisher(({ key }) => (key === '1' ? { kind: 'failed', reason: 'busy' } : undefined));
    const relay = relayOf({ destinations: { events: broker } });
    const [first, other] = await emit(created('1'), created('2'));
    const step = await stepRelay(relay);
    expect(step).toMatchObject({
      delivered: [{ eventId: other }],
      failed: [{ eventId: first, error: expect.stringMatching(/busy$/) }],
    });
    broker.respond = () => undefined;
    expect((await stepRelay(relay, { makeDue: outbox.admin })).delivered).toMatchObject([
      { eventId: first, attempt: 2 },
    ]);
    expect(broker.messages.map(({ eventId }) => eventId)).toEqual([other, first]);
    expect(broker.attempts.map(({ eventId }) => eventId).sort()).toEqual([first, first, other].sort());
  });

  it('keeps the order of a key when a message fails', async () => {
    const broker = new RecordingPublisher(({ body }) =>
      body === '1' ? { kind: 'failed', reason: 'busy' } : undefined,
    );
    const batch = ['1', '2'].map((body) => testMessage({ topic: 't', key: 'k', body }));
    const outcomes = await broker.publish(batch, new AbortController().signal);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['failed', 'released']);
    expect(broker.messages).toEqual([]);
  });

  it('does what every publisher must do', async () => {
    let topics = 0;
    const broker = new RecordingPublisher();
    const checks = publisherConformance({
      createPublisher: () => broker,
      createTopic: async () => `topic-${++topics}`,
      read: async (topic) =>
        broker.messages
          .filter((message) => message.topic === topic)
          .map(({ body, key, headers, contentType, eventId }) => {
            const bodyBytes = Buffer.from(body as string);
            return { body: bodyBytes.toString(), bodyBytes, key, headers, contentType, eventId };
          }),
    });
    expect(checks.length).toBeGreaterThan(5);
    for (const check of checks) await check.run();
  });
});
