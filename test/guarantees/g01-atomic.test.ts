import pg from 'pg';
import { describe, expect, test } from 'vitest';
import type { PostcommitError } from '../../src/index.ts';
import { endChild, startChild } from '../support/child.ts';
import { useEmitScenario } from '../support/emit-scenario.ts';
import { insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';

// outbox.transaction() has files of its own: g01-transaction.test.ts and g01-commit.test.ts.
describe('G1 atomic', () => {
  const scenario = useEmitScenario({ max: 3 });

  describe('an event exists exactly when its transaction committed', () => {
    async function withClient(work: (client: pg.PoolClient) => Promise<void>): Promise<void> {
      const client = await scenario.pool.connect();
      try {
        await work(client);
        client.release();
      } catch (error) {
        client.release(true);
        throw error;
      }
    }

    async function emitInTransaction(client: pg.PoolClient): Promise<string> {
      await client.query('begin');
      await client.query(insertOrder, ['1']);
      return scenario.outbox.emit(client, orderCreated('1'));
    }

    test('commit', async () => {
      await withClient(async (client) => {
        const id = await emitInTransaction(client);
        expect(await written(scenario.database)).toEqual(nothing);
        await client.query('commit');
        expect(await written(scenario.database)).toEqual(one);
        expect(await scenario.database.query('select id from postcommit.outbox_events')).toEqual([{ id }]);
      });
    });

    test('rollback', async () => {
      await withClient(async (client) => {
        await emitInTransaction(client);
        await client.query('rollback');
        expect(await written(scenario.database)).toEqual(nothing);
      });
    });

    test('rollback to a savepoint takes its events back, and only these', async () => {
      await withClient(async (client) => {
        const kept = await emitInTransaction(client);
        await client.query('savepoint attempt');
        await scenario.outbox.emit(client, [orderCreated('1'), orderCreated('2')]);
        await client.query('rollback to savepoint attempt');
        // The locks of the savepoint are gone; emitting for the same key must take them again.
        const again = await scenario.outbox.emit(client, orderCreated('2'));
        await client.query('commit');
        const rows = await scenario.database.query<{ id: string }>(
          'select id from postcommit.outbox_events order by seq',
        );
        expect(rows.map(({ id }) => id)).toEqual([kept, again]);
        expect(await written(scenario.database)).toEqual({ orders: 1, events: 2, queued: 2 });
      });
    });

    test('the connection is cut before COMMIT', async () => {
      const client = await scenario.pool.connect();
      await emitInTransaction(client);
      const commit = scenario.proxy.holdRequest({ text: /^commit$/ });
      const committed = client.query('commit');
      await commit.caught;
      commit.cut();
      await expect(committed).rejects.toThrow();
      client.release(true);
      // The server notices the lost client by itself; what it held is free again then.
      await scenario.database.query(insertOrder, ['1']);
      expect(await written(scenario.database)).toEqual({ ...nothing, orders: 1 });
    });

    test('the process is killed in the middle of the transaction', async () => {
      const child = startChild('test/emit/emitter.child.ts', [scenario.database.url, '1']);
      try {
        await child.next(({ eventId }) => eventId);
        child.kill('SIGKILL');
        await child.exited;
      } finally {
        await endChild(child);
      }
      // The next writer of this order does not wait: the locks of the row and of the key ended with the process.
      await withClient(async (client) => {
        await emitInTransaction(client);
        await client.query('commit');
      });
      expect(await written(scenario.database)).toEqual(one);
    });

    test('a deferred constraint that fails at COMMIT takes the event with it', async () => {
      await withClient(async (client) => {
        await emitInTransaction(client);
        await client.query(`insert into lines values ('no such order')`);
        await expect(client.query('commit')).rejects.toMatchObject({ code: '23503' });
      });
      expect(await written(scenario.database)).toEqual(nothing);
    });
  });

  describe('emit refuses what is not an open transaction', () => {
    const event = orderCreated('1');

    async function expectRefusal(handle: unknown, code: PostcommitError['code']): Promise<void> {
      await expect(scenario.outbox.emit(handle as pg.PoolClient, event)).rejects.toMatchObject({
        name: 'PostcommitError',
        code,
      });
      expect(await written(scenario.database)).toEqual(nothing);
    }

    test('a pool, nothing, something else', async () => {
      await expectRefusal(scenario.pool, 'POSTCOMMIT_E_NOT_A_TRANSACTION');
      for (const handle of [null, undefined, 'tx', {}, { query: 'select 1' }]) {
        await expectRefusal(handle, 'POSTCOMMIT_E_NOT_A_TRANSACTION');
      }
    });

    test('an idle client, also one that was in a transaction before', async () => {
      const client = await scenario.pool.connect();
      await expectRefusal(client, 'POSTCOMMIT_E_NOT_A_TRANSACTION');
      for (const end of ['commit', 'rollback']) {
        await client.query('begin');
        await client.query(end);
        await expectRefusal(client, 'POSTCOMMIT_E_NOT_A_TRANSACTION');
      }
      client.release();
    });

    test('an empty list of events is no way around it', async () => {
      await expect(scenario.outbox.emit(scenario.pool as unknown as pg.PoolClient, [])).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
      });
      const client = await scenario.pool.connect();
      await client.query('begin');
      expect(await scenario.outbox.emit(client, [])).toEqual([]);
      await client.query('rollback');
      client.release();
    });

    test('a failed transaction', async () => {
      const client = await scenario.pool.connect();
      await client.query('begin');
      await expect(client.query('select 1 / 0')).rejects.toThrow('division by zero');
      await expectRefusal(client, 'POSTCOMMIT_E_TRANSACTION_ABORTED');
      // Once more: right after the error the client may not know yet that its transaction has failed.
      await expectRefusal(client, 'POSTCOMMIT_E_TRANSACTION_ABORTED');
      await client.query('rollback');
      client.release();
    });

    test('a released client', async () => {
      const client = await scenario.pool.connect();
      client.release();
      await expectRefusal(client, 'POSTCOMMIT_E_NOT_A_TRANSACTION');
    });

    test('a client that was closed, lost its connection, or never had one', async () => {
      const closed = new pg.Client({ connectionString: scenario.database.url });
      await expectRefusal(closed, 'POSTCOMMIT_E_CLIENT_CLOSED');
      await closed.connect();
      await closed.query('begin');
      await closed.end();
      await expectRefusal(closed, 'POSTCOMMIT_E_CLIENT_CLOSED');

      const lost = await scenario.pool.connect();
      await lost.query('begin');
      scenario.proxy.cut();
      await expect(lost.query('select 1')).rejects.toThrow();
      await expectRefusal(lost, 'POSTCOMMIT_E_CLIENT_CLOSED');
      lost.release(true);
    });

    test('a connection that breaks under emit itself', async () => {
      const client = await scenario.pool.connect();
      await client.query('begin');
      const emit = scenario.proxy.holdRequest({ text: /emit/ });
      const emitted = scenario.outbox.emit(client, event);
      await emit.caught;
      emit.cut();
      await expect(emitted).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
      client.release(true);
      expect(await written(scenario.database)).toEqual(nothing);
    });
  });

  describe('an emit that is not awaited', () => {
    test.each(['commit', 'rollback'])('belongs to the transaction when %s follows it', async (end) => {
      const client = await scenario.pool.connect();
      await client.query('begin');
      await client.query(insertOrder, ['1']);
      const emitted = scenario.outbox.emit(client, orderCreated('1'));
      await client.query(end);
      await emitted;
      client.release();
      expect(await written(scenario.database)).toEqual(end === 'commit' ? one : nothing);
    });

    test.each(['commit', 'rollback'])('is refused when %s overtakes it', async (end) => {
      const client = await scenario.pool.connect();
      await client.query('begin');
      await client.query(insertOrder, ['1']);
      const emitted = Promise.resolve().then(() => scenario.outbox.emit(client, orderCreated('1')));
      const ended = client.query(end);
      // Sent after the transaction's end it would be committed by itself, whatever became of the business data.
      await expect(emitted).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
      await ended;
      client.release();
      expect(await written(scenario.database)).toEqual({ ...nothing, orders: end === 'commit' ? 1 : 0 });
    });

    test('is written when it is in time', async () => {
      const client = await scenario.pool.connect();
      const begun = client.query('begin');
      const inserted = client.query(insertOrder, ['1']);
      const emitted = scenario.outbox.emit(client, orderCreated('1'));
      await Promise.all([begun, inserted, emitted]);
      await client.query('commit');
      client.release();
      expect(await written(scenario.database)).toEqual(one);
    });

    test('and one on a client of the user’s own that pipelines', async () => {
      const client = new pg.Client({ connectionString: scenario.database.url, pipeline: true } as pg.ClientConfig);
      await client.connect();
      const emit = (id: string) => scenario.outbox.emit(client as unknown as pg.PoolClient, orderCreated(id));
      const begun = client.query('begin');
      const emitted = emit('1');
      await Promise.all([begun, emitted]);
      await client.query('commit');
      const outside = client.query('select 1');
      await expect(emit('2')).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
      await outside;
      await client.end();
      expect(await written(scenario.database)).toEqual({ orders: 0, events: 1, queued: 1 });
    });
  });

  test('works with a client that tells nothing about itself', async () => {
    const client = await scenario.pool.connect();
    const wrapper = { query: (text: string, values?: unknown[]) => client.query(text, values) };
    const emit = () => scenario.outbox.emit(wrapper as unknown as pg.PoolClient, orderCreated('1'));
    await expect(emit()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    await client.query('begin');
    await client.query(insertOrder, ['1']);
    await emit();
    await client.query('commit');
    client.release();
    expect(await written(scenario.database)).toEqual(one);
  });
});
