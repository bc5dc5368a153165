import pg from 'pg';
import { afterEach, describe, expect, test } from 'vitest';
import { createOutbox, defineEvents, fromPg } from '../../src/index.ts';
import { expectUsable, useEmitScenario } from '../support/emit-scenario.ts';
import { insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';
import { deferred } from '../support/wait.ts';

describe('G1 atomic, outbox.transaction', () => {
  // One client: a client that is broken and not removed from the pool fails the next transaction.
  const scenario = useEmitScenario({ max: 1, connectionTimeoutMillis: 5_000 });
  afterEach(() => expectUsable(scenario.pool));

  async function order(tx: pg.PoolClient, id = '1'): Promise<void> {
    await tx.query(insertOrder, [id]);
  }

  test.each([{}, { pipeline: false }])('commits both and answers what the work answered: %j', async (options) => {
    const answer = await scenario.outbox.transaction(async (tx, emit) => {
      await order(tx);
      const id = await emit(orderCreated('1'));
      expect(id).toMatch(/^[0-9a-f-]{36}$/);
      expect(await written(scenario.database)).toEqual(nothing);
      return id;
    }, options);
    expect(await written(scenario.database)).toEqual(one);
    expect(await scenario.database.query('select id from postcommit.outbox_events')).toEqual([{ id: answer }]);
  });

  test('commits without any event', async () => {
    await scenario.outbox.transaction((tx) => order(tx));
    expect(await written(scenario.database)).toEqual({ ...nothing, orders: 1 });
  });

  test('keeps the order of the calls, also when they are not awaited and one validation takes longer', async () => {
    const late = deferred();
    const slow = {
      '~standard': { version: 1, vendor: 'test', validate: () => late.promise.then(() => ({ value: 1 })) },
    };
    const events = defineEvents({ slow: { schema: slow }, fast: {} });
    const checked = createOutbox<pg.PoolClient>({ db: fromPg(scenario.pool), notify: false, events });
    await checked.transaction(async (_tx, emit) => {
      void emit({ type: 'slow', aggregate: ['order', '1'], payload: 1 });
      void emit([
        { type: 'fast', aggregate: ['order', '1'], payload: 2 },
        { type: 'fast', aggregate: ['order', '1'], payload: 3 },
      ]);
      setImmediate(late.resolve);
    });
    const rows = await scenario.database.query('select payload from postcommit.outbox_events order by seq');
    expect(rows.map(({ payload }) => payload)).toEqual([1, 2, 3]);
  });

  test.each([{}, { pipeline: false }])('an error thrown inside leaves nothing: %j', async (options) => {
    const failing = scenario.outbox.transaction(async (tx, emit) => {
      await order(tx);
      await emit(orderCreated('1'));
      throw new Error('out of stock');
    }, options);
    await expect(failing).rejects.toThrow('out of stock');
    expect(await written(scenario.database)).toEqual(nothing);
  });

  test.each([{}, { pipeline: false }])('a swallowed SQL error fails the transaction: %j', async (options) => {
    for (const emits of [true, false]) {
      const failing = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        if (emits) await emit(orderCreated('1'));
        await tx.query('select 1 / 0').catch(() => {});
      }, options);
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
      expect(await written(scenario.database)).toEqual(nothing);
    }
  });

  test.each([{}, { pipeline: false }])(
    'an event refused at COMMIT takes the business data with it: %j',
    async (options) => {
      const id = '018f3b1e-7f57-7000-8000-000000000001';
      await scenario.database.query(`select postcommit.emit('order.created', 'order', '0', 'null', id => $1)`, [id]);
      const failing = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit(orderCreated('1', { id }));
      }, options);
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DUPLICATE_ID' });
      expect(await written(scenario.database)).toEqual({ orders: 0, events: 1, queued: 1 });
    },
  );

  test('a constraint that fails at COMMIT is thrown as it is', async () => {
    const failing = scenario.outbox.transaction(async (tx, emit) => {
      await tx.query(`insert into lines values ('no such order')`);
      await emit(orderCreated('1'));
    });
    await expect(failing).rejects.toMatchObject({ code: '23503' });
    expect(await written(scenario.database)).toEqual(nothing);
  });

  test('an emit that fails and is not awaited fails the transaction', async () => {
    const failing = scenario.outbox.transaction(async (tx, emit) => {
      await order(tx);
      void emit(orderCreated('1', { id: 'not a uuid' }));
    });
    await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_ID' });
    expect(await written(scenario.database)).toEqual(nothing);
  });

  test('events that together are too large fail before anything is committed', async () => {
    const payload = 'x'.repeat(41_000_000);
    const large = createOutbox<pg.PoolClient>({
      db: fromPg(scenario.pool),
      notify: false,
      payloadBytesMax: 42_000_000,
    });
    const failing = large.transaction(async (tx, emit) => {
      await order(tx);
      await emit(orderCreated('1', { payload }));
      await emit(orderCreated('2', { payload }));
    });
    await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_PAYLOAD_TOO_LARGE' });
    expect(await written(scenario.database)).toEqual(nothing);
  });

  test('emit after the end is refused', async () => {
    let late: ((event: ReturnType<typeof orderCreated>) => Promise<string>) | undefined;
    await scenario.outbox.transaction(async (tx, emit) => {
      late = emit;
      await order(tx);
    });
    await expect(late?.(orderCreated('1'))).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    expect(await written(scenario.database)).toEqual({ ...nothing, orders: 1 });
  });

  test('emit while the end is under way is refused, not lost', async () => {
    const checking = deferred();
    const finish = deferred();
    const schema = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: async () => {
          checking.resolve();
          await finish.promise;
          return { value: 1 };
        },
      },
    };
    const checked = createOutbox<pg.PoolClient>({
      db: fromPg(scenario.pool),
      notify: false,
      events: defineEvents({ 'order.created': { schema } }),
    });
    let late: Promise<string> | undefined;
    await checked.transaction(async (tx, emit) => {
      await order(tx);
      void emit(orderCreated('1'));
      // By then the work has ended, and its first event is still being checked.
      void checking.promise.then(() =>
        setImmediate(() => {
          late = emit(orderCreated('2'));
          late.catch(() => {});
          finish.resolve();
        }),
      );
    });
    await expect(late).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    expect(await written(scenario.database)).toEqual(one);
  });

  test.each(['commit', 'rollback'])(
    '%s inside is refused, and the events are not written by themselves',
    async (end) => {
      const failing = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit(orderCreated('1'));
        await tx.query(end);
      });
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
      expect(await written(scenario.database)).toEqual({ ...nothing, orders: end === 'commit' ? 1 : 0 });
    },
  );

  describe.each([{}, { pipeline: false }])('ended inside, unnoticed by the client: %j', (options) => {
    test.each([
      ['rollback', 0],
      ['commit', 1],
      ['rollback and chain', 0],
    ])('%s that is not awaited', async (end, orders) => {
      const failing = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit(orderCreated('1'));
        void tx.query(end);
      }, options);
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
      expect(await written(scenario.database)).toEqual({ ...nothing, orders });
    });

    test.each([
      ['rollback', 0],
      ['commit', 1],
    ])('%s, and another begin', async (end, orders) => {
      const failing = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit(orderCreated('1'));
        await tx.query(end);
        await tx.query('begin');
        await order(tx, '2');
      }, options);
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
      expect(await written(scenario.database)).toEqual({ ...nothing, orders });
    });

    test('a failing statement that is not awaited', async () => {
      const failing = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit(orderCreated('1'));
        tx.query('select 1 / 0').catch(() => {});
      }, options);
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
      expect(await written(scenario.database)).toEqual(nothing);
    });
  });

  test.each([{}, { pipeline: false }])('outbox.emit(tx, …) works inside as well: %j', async (options) => {
    await scenario.outbox.transaction(async (tx, emit) => {
      await scenario.outbox.emit(tx, orderCreated('1'));
      await order(tx);
      await emit(orderCreated('1'));
      // At once: only the server knows the state of the transaction then.
      await Promise.all(['2', '3', '4'].map((id) => scenario.outbox.emit(tx, orderCreated(id))));
    }, options);
    expect(await written(scenario.database)).toEqual({ orders: 1, events: 5, queued: 5 });
  });

  test.each(['read committed', 'repeatable read', 'serializable'] as const)('isolation %s', async (isolation) => {
    for (const pipeline of [true, false]) {
      const level = await scenario.outbox.transaction(
        async (tx) => (await tx.query('show transaction_isolation')).rows[0].transaction_isolation,
        { isolation, pipeline },
      );
      expect(level).toBe(isolation);
    }
  });

  test('an isolation that does not exist is refused, and no client is taken for it', async () => {
    for (let i = 0; i < 2; i++) {
      const refused = scenario.outbox.transaction(async () => {}, {
        isolation: 'read uncommitted; drop table orders' as never,
      });
      await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    }
  });

  test('a statement that the work left behind does not reach the next user of the client', async () => {
    const leftBehind = deferred<PromiseSettledResult<unknown>[]>();
    const rollback = scenario.proxy.holdAnswer({ text: /^rollback$/ });
    const failing = scenario.outbox.transaction(async (tx) => {
      await order(tx);
      void rollback.caught.then(async () => {
        const strays = Promise.allSettled([
          tx.query('select 1'),
          tx.query('select pg_sleep(60)'),
          tx.query('select 3'),
        ]);
        rollback.release();
        leftBehind.resolve(await strays);
      });
      throw new Error('out of stock');
    });
    await expect(failing).rejects.toThrow('out of stock');
    await expectUsable(scenario.pool);
    expect((await leftBehind.promise).at(-1)).toMatchObject({ status: 'rejected' });
  });

  test('an ended pool and an unreachable server', async () => {
    const ended = new pg.Pool({ connectionString: scenario.database.url });
    await ended.end();
    const refused = createOutbox({ db: fromPg(ended) }).transaction(async () => {});
    await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_CLIENT_CLOSED' });

    scenario.proxy.refuse();
    await expect(scenario.outbox.transaction(async () => {})).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE',
    });
    scenario.proxy.accept();
  });
});
