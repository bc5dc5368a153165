import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from 'vitest';
import { handlerMarks } from '../../src/frameworks/nestjs/handler-marks.ts';
import { OnOutboxEvent } from '../../src/frameworks/nestjs/on-outbox-event.ts';
import { Outbox } from '../../src/frameworks/nestjs/outbox.ts';
import { OutboxEvent } from '../../src/frameworks/nestjs/outbox-event.ts';
import { RecordingOutbox } from '../../src/frameworks/nestjs/recording-outbox.ts';
import { fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

class OrderCreated extends OutboxEvent {
  static readonly eventType = 'order.created';
  readonly orderId: string;
  constructor(orderId: string) {
    super();
    this.orderId = orderId;
  }
  override aggregate() {
    return ['order', this.orderId] as const;
  }
}

/** No aggregate, and a payload of its own. */
class OrderPaid extends OutboxEvent {
  static readonly eventType = 'order.paid';
  override toPayload() {
    return { paid: true };
  }
}

class Untyped extends OutboxEvent {
  override aggregate() {
    return ['order', '1'] as const;
  }
}

/** Its payload has a property that an entry of emitMany has, too. */
class NotificationFailed extends OutboxEvent {
  static readonly eventType = 'notification.failed';
  readonly event: OrderCreated | null;
  constructor(event: OrderCreated | null) {
    super();
    this.event = event;
  }
  override aggregate() {
    return ['notification', '1'] as const;
  }
}

const badEvent = { code: 'POSTCOMMIT_E_BAD_EVENT' };

let database: TestDatabase;
let outbox: Outbox<pg.PoolClient>;
beforeAll(async () => {
  database = await createTestDatabase();
  outbox = new Outbox({ db: fromPg(database.pool) });
});
afterAll(() => database.close());

async function inTransaction<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await database.pool.connect();
  try {
    await client.query('begin');
    const result = await work(client);
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}

async function rowOf(id: string) {
  const [row] = await database.query(
    `select event_type, aggregate_type, aggregate_id, payload, headers, ordering_key, attempts_max, queue, schema_version
       from postcommit.outbox_events where id = $1`,
    [id],
  );
  return row;
}

describe('emit with events of classes', () => {
  it('takes type, payload and aggregate from the class', async () => {
    const id = await inTransaction((tx) => outbox.emit(tx, new OrderCreated('7')));
    expect(await rowOf(id)).toMatchObject({
      event_type: 'order.created',
      aggregate_type: 'order',
      aggregate_id: '7',
      payload: { orderId: '7' },
      headers: {},
    });
  });

  it('takes everything that an event can have from its options, and four of them as headers', async () => {
    const id = await inTransaction((tx) =>
      outbox.emit(tx, new OrderPaid(), {
        aggregate: ['invoice', 5],
        headers: { source: 'shop' },
        tenantId: 'acme',
        correlationId: 'a',
        causationId: 'b',
        idempotencyKey: 'c',
        partitionKey: 'customer-1',
        attemptsMax: 3,
        queue: 'slow',
        schemaVersion: 2,
      }),
    );
    expect(await rowOf(id)).toEqual({
      event_type: 'order.paid',
      aggregate_type: 'invoice',
      aggregate_id: '5',
      payload: { paid: true },
      headers: {
        source: 'shop',
        'tenant-id': 'acme',
        'correlation-id': 'a',
        'causation-id': 'b',
        'idempotency-key': 'c',
      },
      ordering_key: 'customer-1',
      attempts_max: 3,
      queue: 'slow',
      schema_version: 2,
    });
  });

  it('emits many with one call: classes, plain events, and entries with options of their own', async () => {
    const [first = '', second = '', third = ''] = await inTransaction((tx) =>
      outbox.emitMany(
        tx,
        [
          new OrderCreated('8'),
          { event: new OrderPaid(), options: { aggregateType: 'order', aggregateId: '8', tenantId: 'other' } },
          { type: 'order.archived', aggregate: ['order', '8'], payload: null, headers: { own: '1' } },
        ],
        { tenantId: 'acme' },
      ),
    );
    expect((await rowOf(first))?.headers).toEqual({ 'tenant-id': 'acme' });
    expect(await rowOf(second)).toMatchObject({ aggregate_id: '8', headers: { 'tenant-id': 'other' } });
    expect(await rowOf(third)).toMatchObject({ payload: null, headers: { own: '1', 'tenant-id': 'acme' } });
  });

  it('emits an event with a property named event as what it is, in a list too', async () => {
    const event = new NotificationFailed(new OrderCreated('7'));
    const ids = await inTransaction(async (tx) => [
      await outbox.emit(tx, event),
      ...(await outbox.emitMany(tx, [event, { event }])),
      ...(await outbox.emit(tx, [event as never])),
      ...(await outbox.emitMany(tx, [new NotificationFailed(null)])),
    ]);
    ids.unshift(...(await outbox.transaction([], [event])));
    const rows = await Promise.all(ids.map(rowOf));
    expect(rows.map((row) => row?.event_type)).toEqual(ids.map(() => 'notification.failed'));
    const payloads = rows.map((row) => row?.payload);
    expect(payloads.at(-1)).toEqual({ event: null });
    for (const payload of payloads.slice(0, -1)) {
      expect(payload).toEqual({ event: { orderId: '7' } });
    }
  });

  it('refuses an entry with other names than event and options', async () => {
    const entry = { event: new OrderCreated('7'), option: { delayMs: 60_000 } };
    const refused = inTransaction((tx) => outbox.emitMany(tx, [entry]));
    const text = 'An entry of emitMany() has no option option. Did you mean options?';
    await expect(refused).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_EVENT',
      message: expect.stringContaining(text),
    });
  });

  it('takes them in outbox.transaction and emitOnce too', async () => {
    const id = await outbox.transaction((_tx, emit) => emit(new OrderCreated('9')));
    expect((await rowOf(id))?.aggregate_id).toBe('9');
    const again = await outbox.transaction([], new OrderCreated('10'));
    expect((await rowOf(again))?.aggregate_id).toBe('10');
    const once = () => inTransaction((tx) => outbox.emitOnce(tx, new OrderCreated('9'), { id }));
    expect(await once()).toEqual({ id, written: false });
  });

  it.each([
    ['a class without a type', new Untyped(), {}, 'POSTCOMMIT_E_EVENT_CLASS', 'Untyped has no type'],
    ['a class without an aggregate', new OrderPaid(), {}, 'POSTCOMMIT_E_EVENT_CLASS', 'OrderPaid has no aggregate'],
    ['a misspelt option', new OrderCreated('1'), { tenant: 'a' }, 'POSTCOMMIT_E_BAD_EVENT', 'Did you mean tenantId?'],
    ['no event, with options', null, { tenantId: 'a' }, 'POSTCOMMIT_E_BAD_EVENT', 'An event is an object'],
    [
      'half an aggregate',
      new OrderCreated('1'),
      { aggregateType: 'invoice' },
      'POSTCOMMIT_E_BAD_EVENT',
      'aggregateType without aggregateId',
    ],
    [
      'the other half',
      new OrderCreated('1'),
      { aggregateId: '7', aggregateType: null },
      'POSTCOMMIT_E_BAD_EVENT',
      'aggregateId without aggregateType',
    ],
    ['no event at all', undefined, {}, 'POSTCOMMIT_E_BAD_EVENT', 'An event is an object'],
  ])('refuses %s, and nothing is written', async (_name, event, options, code, text) => {
    const [{ count: before }] = await database.query('select count(*) from postcommit.outbox_events');
    const refused = inTransaction((tx) => outbox.emit(tx, event as never, options as never));
    await expect(refused).rejects.toMatchObject({ code, message: expect.stringContaining(text) });
    const [{ count }] = await database.query('select count(*) from postcommit.outbox_events');
    expect(count).toBe(before);
  });

  it.each([undefined, null, new OrderCreated('1')])('refuses %o as a list of events', async (given) => {
    const refused = inTransaction((tx) => outbox.emitMany(tx, given as never));
    const error = { code: 'POSTCOMMIT_E_BAD_EVENT', message: expect.stringContaining('takes a list of events') };
    await expect(refused).rejects.toMatchObject(error);
    await expect(new RecordingOutbox().emitMany(undefined, given as never)).rejects.toMatchObject(error);
  });

  describe('in outbox.transaction, an event that cannot be converted', () => {
    class Broken extends OrderCreated {
      override toPayload(): never {
        throw new Error('no total yet');
      }
    }
    const wrong: [string, unknown, object, object][] = [
      ['half an aggregate', new OrderCreated('1'), { aggregateType: 'order', aggregateId: null }, badEvent],
      ['a misspelt option', new OrderCreated('1'), { tenant: 'a' }, badEvent],
      ['no aggregate', new OrderPaid(), {}, { code: 'POSTCOMMIT_E_EVENT_CLASS' }],
      ['a toPayload that throws', new Broken('1'), {}, { message: 'no total yet' }],
      ['one of a list', [new OrderCreated('1'), new OrderPaid()], {}, { code: 'POSTCOMMIT_E_EVENT_CLASS' }],
    ];
    const count = async () => (await database.query('select count(*)::int as n from postcommit.outbox_events'))[0].n;

    it.each(wrong)('fails it although nothing awaits emit: %s', async (_name, event, options, error) => {
      const before = await count();
      const failing = outbox.transaction(async (_tx, emit) => {
        await emit(new OrderCreated('1'));
        // The promise that forEach() ignores is rejected if emit() throws, which ends a process.
        [event].forEach(async (each) => void emit(each as never, options as never));
      });
      await expect(failing).rejects.toMatchObject(error);
      expect(await count()).toBe(before);
    });

    it.each(wrong)('fails it although the error of emit is ignored: %s', async (_name, event, options, error) => {
      const before = await count();
      const failing = outbox.transaction(async (_tx, emit) => {
        try {
          await emit(event as never, options as never);
        } catch {
          // As code does for which the event is not important.
        }
      });
      await expect(failing).rejects.toMatchObject(error);
      expect(await count()).toBe(before);
    });

    it('rejects the promise of the form with statements', async () => {
      const error = { code: 'POSTCOMMIT_E_EVENT_CLASS' };
      for (const events of [new OrderPaid(), [new OrderPaid()]]) {
        const failing = outbox.transaction([{ text: 'select 1' }], events as never);
        await expect(failing).rejects.toMatchObject(error);
      }
    });

    it('fails the batch of a statement', async () => {
      const db = { ...fromPg(database.pool), statement: (event: Promise<unknown>) => event };
      const batched = new Outbox<pg.PoolClient, Promise<unknown>>({ db }).statement(new OrderPaid() as never);
      await expect(batched).rejects.toMatchObject({ code: 'POSTCOMMIT_E_EVENT_CLASS' });
    });
  });

  it('refuses the pool', async () => {
    const refused = outbox.emit(database.pool as never, new OrderCreated('1'));
    await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
  });

  it('does not compile for a class without an aggregate, unless emit gets it', () => {
    const tx = {} as pg.PoolClient;
    const calls = () => [
      outbox.emit(tx, new OrderPaid(), { aggregate: ['order', '1'] }),
      // @ts-expect-error: no aggregate.
      outbox.emit(tx, new OrderPaid()),
      // @ts-expect-error: the pool is no client.
      outbox.emit(database.pool, new OrderCreated('1')),
      // @ts-expect-error: a class without eventType.
      OnOutboxEvent(Untyped),
    ];
    expectTypeOf(calls).toBeFunction();
  });
});

describe('@OnOutboxEvent', () => {
  it.each([
    ['no event', () => OnOutboxEvent(), 'POSTCOMMIT_E_BAD_OPTION', 'needs an event'],
    [
      'a class without a type',
      () => OnOutboxEvent(Untyped as never),
      'POSTCOMMIT_E_EVENT_CLASS',
      'Untyped has no type',
    ],
    [
      'a misspelt option',
      () => OnOutboxEvent('a', { timeoutMS: 5 } as never),
      'POSTCOMMIT_E_BAD_OPTION',
      'Did you mean timeoutMs?',
    ],
    ['something else than a method', () => OnOutboxEvent('a')({}, 'name'), 'POSTCOMMIT_E_BAD_OPTION', 'on a method'],
    [
      'a static method',
      () => OnOutboxEvent('a')({ handle() {} }.handle, { kind: 'method', name: 'handle', static: true }),
      'POSTCOMMIT_E_BAD_OPTION',
      'neither static nor #private',
    ],
    [
      'a static method, with the older decorators',
      () => OnOutboxEvent('a')(Date, 'now'),
      'POSTCOMMIT_E_BAD_OPTION',
      'neither static nor #private',
    ],
    [
      'a #private method',
      () => OnOutboxEvent('a')({ handle() {} }.handle, { kind: 'method', name: '#handle', private: true }),
      'POSTCOMMIT_E_BAD_OPTION',
      'neither static nor #private',
    ],
  ])('refuses %s', (_name, decorate, code, text) => {
    expect(decorate).toThrow(expect.objectContaining({ code, message: expect.stringContaining(text) }));
  });

  const typesOf = (prototype: object) =>
    Object.fromEntries(
      [...handlerMarks(prototype)].map(([name, marks]) => [name, marks.flatMap(({ types }) => types)]),
    );

  it('leaves the base class alone when it is applied to a method that a subclass inherits', () => {
    class Base {
      handle() {}
      other() {}
    }
    class Derived extends Base {}
    class Sibling extends Base {}
    OnOutboxEvent('base')(Base.prototype, 'handle');
    OnOutboxEvent('derived')(Derived.prototype, 'handle');
    OnOutboxEvent('derived')(Derived.prototype, 'other');
    expect(typesOf(Derived.prototype)).toEqual({ handle: ['derived', 'base'], other: ['derived'] });
    expect(typesOf(Sibling.prototype)).toEqual({ handle: ['base'] });
    expect(typesOf(Base.prototype)).toEqual({ handle: ['base'] });
  });

  it('goes with a method that is copied to another class, as mixins do', () => {
    class Mixin {
      handle() {}
    }
    OnOutboxEvent('mixin')(Mixin.prototype, 'handle');
    class Target {}
    Object.defineProperty(Target.prototype, 'handle', { value: Mixin.prototype.handle });
    expect(typesOf(Target.prototype)).toEqual({ handle: ['mixin'] });
  });

  it('goes with methods of two classes that are copied with all their properties, and stays what it is there', () => {
    class First {
      one() {}
    }
    class Second {
      two() {}
    }
    class Target {
      three() {}
    }
    OnOutboxEvent('one')(First.prototype, 'one');
    OnOutboxEvent('two')(Second.prototype, 'two');
    for (const { prototype } of [First, Second]) {
      const { constructor: _, ...members } = Object.getOwnPropertyDescriptors(prototype);
      Object.defineProperties(Target.prototype, members);
    }
    OnOutboxEvent('three')(Target.prototype, 'three');
    expect(typesOf(Target.prototype)).toEqual({ one: ['one'], two: ['two'], three: ['three'] });
    expect(typesOf(Second.prototype)).toEqual({ two: ['two'] });
  });

  it('is found once where another decorator keeps the method that it replaces', () => {
    class Keeping {
      handle() {}
    }
    const { prototype } = Keeping;
    OnOutboxEvent('kept')(prototype, 'handle');
    Object.assign(prototype, { original: prototype.handle });
    Object.defineProperty(prototype, 'handle', { value: () => {} });
    expect(typesOf(prototype)).toEqual({ handle: ['kept'] });
  });

  it('does not hold for a method that overrides the handler, unless that is decorated itself', () => {
    class Base {
      handle() {}
    }
    class Derived extends Base {
      override handle() {}
    }
    OnOutboxEvent('base')(Base.prototype, 'handle');
    expect(typesOf(Derived.prototype)).toEqual({});
    OnOutboxEvent('derived')(Derived.prototype, 'handle');
    expect(typesOf(Derived.prototype)).toEqual({ handle: ['derived'] });
  });
});

describe('RecordingOutbox', () => {
  it('keeps events in order, and checks them as the outbox does', async () => {
    const recorded = new RecordingOutbox();
    const id = await recorded.emit(undefined, new OrderCreated('7'), { tenantId: 'acme' });
    await recorded.emitMany(undefined, [new OrderCreated('8')]);
    expect(await recorded.emitOnce(undefined, new OrderCreated('7'), { id: id as string })).toEqual({
      id,
      written: false,
    });
    expect(recorded.events.map(({ payload, headers }) => ({ payload, headers }))).toEqual([
      { payload: { orderId: '7' }, headers: { 'tenant-id': 'acme' } },
      { payload: { orderId: '8' } },
    ]);
    const refused = recorded.emit(undefined, { type: '', aggregate: ['a', '1'], payload: 1 });
    await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_EVENT' });
  });
});
