import { afterEach, describe, expect, test } from 'vitest';
import type { Statement, TransactionOptions } from '../../src/index.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { expectUsable, useEmitScenario } from '../support/emit-scenario.ts';
import { clear, insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';

describe('G1 atomic, outbox.transaction of known statements', () => {
  // One client: a client that is broken and not removed from the pool fails the next transaction.
  const scenario = useEmitScenario({ max: 1, connectionTimeoutMillis: 5_000 });
  afterEach(() => expectUsable(scenario.pool));

  const order = (id = '1'): Statement => ({ text: insertOrder, values: [id] });
  const ways: [string, TransactionOptions][] = [
    ['as one message', {}],
    ['as one message with BEGIN', { isolation: 'read committed' }],
    ['one by one', { pipeline: false }],
  ];
  const run = (statements: Statement[], options: TransactionOptions = {}) =>
    scenario.outbox.transaction(statements, orderCreated('1'), options);

  describe.each(ways)('%s', (_way, options) => {
    test('commits statements and events, and answers the ids', async () => {
      const id = await run([order()], options);
      expect(await written(scenario.database)).toEqual(one);
      const ids = await scenario.outbox.transaction(
        [order('2'), order('3')],
        ['2', '3'].map((of) => orderCreated(of)),
        options,
      );
      const rows = await scenario.database.query('select id from postcommit.outbox_events order by seq');
      expect(rows.map((row) => row.id)).toEqual([id, ...ids]);
    });

    test('without events or without statements', async () => {
      expect(await scenario.outbox.transaction([order()], [], options)).toEqual([]);
      expect(await written(scenario.database)).toEqual({ ...nothing, orders: 1 });
      await run([], options);
      expect(await written(scenario.database)).toEqual(one);
    });

    test('values that do not fit their statement are an error of that statement', async () => {
      const misfit = { text: 'insert into orders (id) values ($1 || $2)', values: ['1'] };
      await expect(run([order(), misfit], options)).rejects.toMatchObject({ code: '08P01' });
      expect(await written(scenario.database)).toEqual(nothing);
    });

    test.each(['commit', 'commit and chain', ' END', 'rollback', 'Rollback Work', 'abort', "prepare transaction 'x'"])(
      'a statement that would end the transaction is refused: %s',
      async (text) => {
        await expect(run([order(), { text }], options)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
        expect(await written(scenario.database)).toEqual(nothing);
      },
    );

    test('values are written as pg writes them, and rows are ignored', async () => {
      const at = new Date('2026-01-02T03:04:05.678Z');
      await run(
        [
          {
            text: 'create temporary table kept (at timestamptz, tags text[], data jsonb, raw bytea, n bigint, no text)',
          },
          {
            text: 'insert into kept values ($1, $2, $3, $4, $5, $6) returning *',
            values: [at, ['a', null, 'b"c'], { x: [1] }, Buffer.from([0, 255]), 7n, undefined],
          },
          { text: 'select generate_series(1, 100)' },
          { text: '' },
        ],
        options,
      );
      const { rows } = await scenario.pool.query('select * from kept');
      expect(rows).toEqual([
        { at, tags: ['a', null, 'b"c'], data: { x: [1] }, raw: Buffer.from([0, 255]), n: '7', no: null },
      ]);
    });

    test('a statement that fails leaves nothing, and its error is thrown as it is', async () => {
      await expect(run([order(), order()], options)).rejects.toMatchObject({ code: '23505', table: 'orders' });
      await expect(run([order(), { text: 'select 1 / 0' }, order('2')], options)).rejects.toMatchObject({
        code: '22012',
      });
      await expect(run([order(), { text: 'selec' }], options)).rejects.toMatchObject({ code: '42601' });
      expect(await written(scenario.database)).toEqual(nothing);
    });

    test('a value that cannot be written leaves nothing', async () => {
      const cyclic: { self?: unknown } = {};
      cyclic.self = cyclic;
      await expect(run([order(), { text: 'select $1::json', values: [cyclic] }], options)).rejects.toThrow(/circular/i);
      expect(await written(scenario.database)).toEqual(nothing);
    });

    test('an event that is refused takes the statements with it', async () => {
      const id = '018f3b1e-7f57-7000-8000-000000000001';
      await scenario.outbox.transaction([], orderCreated('0', { id }), options);
      const refused = scenario.outbox.transaction([order()], orderCreated('1', { id }), options);
      await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DUPLICATE_ID' });
      expect(await written(scenario.database)).toEqual({ orders: 0, events: 1, queued: 1 });
    });

    test('a constraint that fails at the commit is thrown as it is', async () => {
      const failing = run([{ text: `insert into lines values ('no such order')` }], options);
      await expect(failing).rejects.toMatchObject({ code: '23503' });
      expect(await written(scenario.database)).toEqual(nothing);
    });

    test.each(['/* */ commit', '/* */ rollback'])('%s among them: the event is not written by itself', async (end) => {
      await expect(run([order(), { text: end }], options)).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
      });
      expect(await written(scenario.database)).toMatchObject({ events: 0, queued: 0 });
    });

    test('a BEGIN among them changes nothing', async () => {
      await run([{ text: 'begin' }, order()], options);
      expect(await written(scenario.database)).toEqual(one);
    });

    test('a procedure among them cannot commit', async () => {
      const ends = { text: 'do $$ begin commit; end $$' };
      await expect(run([order(), ends], options)).rejects.toMatchObject({ code: '2D000' });
      expect(await written(scenario.database)).toEqual(nothing);
    });

    test('COPY, which has no data here, fails it', async () => {
      await expect(run([order(), { text: 'copy orders from stdin' }], options)).rejects.toThrow();
      expect(await written(scenario.database)).toEqual(nothing);
    });

    test('an answer that never comes: the outcome is unknown, and says so', async () => {
      for (const [hold, left] of [
        ['holdRequest', nothing],
        ['holdAnswer', one],
      ] as const) {
        await clear(scenario.database);
        // The last statement of each way.
        const last = scenario.proxy[hold]({
          text: options.isolation || options.pipeline === false ? /^commit$/ : /emit/,
        });
        const unknown = run([order()], options);
        await last.caught;
        last.cut();
        await expect(unknown).rejects.toMatchObject({ code: 'POSTCOMMIT_E_COMMIT_UNKNOWN' });
        // Waits for the lost session to end, if the server has not noticed yet.
        await scenario.database.query('do $$ begin lock table orders in access exclusive mode; end $$');
        expect(await written(scenario.database)).toEqual(left);
      }
    });
  });

  test('everything is one message each way', async () => {
    const first = scenario.proxy.holdAnswer({ text: /^insert into orders/ });
    const done = run([order(), order('2')]);
    // Caught only once the server is done with all that came before the Sync.
    await first.caught;
    expect(await written(scenario.database)).toEqual({ orders: 2, events: 1, queued: 1 });
    expect(scenario.proxy.count({ text: /./ })).toBe(3);
    first.release();
    await done;
  });

  test('isolation is what was asked for', async () => {
    const only = { text: `insert into orders select current_setting('transaction_isolation')` };
    await run([only], { isolation: 'serializable' });
    expect(await scenario.database.query('select id from orders')).toEqual([{ id: 'serializable' }]);
  });

  test('a client that is no pg client of its own gets one statement after the other', async () => {
    const sent: string[] = [];
    const client = {
      query: async (text: string) => {
        sent.push(text.replace(/'[0-9a-f-]{36}'/, '…').replace(/\(.*/, ''));
        return { rows: [], command: text === 'commit' ? 'COMMIT' : '' };
      },
      release: () => {},
    };
    const db = fromPg({ connect: async () => client, query: client.query, on: () => {} });
    const outbox = createOutbox({ db, notify: false });
    await outbox.transaction([order()], orderCreated('1'));
    expect(sent).toEqual([
      'begin',
      'set local postcommit.mark = …',
      'insert into orders ',
      'call "postcommit".emit_one',
      'commit',
    ]);
  });

  test('what is neither a function nor a list of statements is refused, and no client is taken for it', async () => {
    for (const wrong of ['insert into orders', [insertOrder], [{}], undefined]) {
      await expect(run(wrong as never)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    }
  });
});
