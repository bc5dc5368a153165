import type pg from 'pg';
import { afterEach, describe, expect, test } from 'vitest';
import type { PgClient } from '../../src/adapters/pg.ts';
import { createOutbox, fromPg, type Outbox } from '../../src/index.ts';
import { expectUsable, useEmitScenario } from '../support/emit-scenario.ts';
import { clear, insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';

describe('G1 atomic, COMMIT over a network', () => {
  // One client: a client that is broken and not removed from the pool fails the next transaction.
  const scenario = useEmitScenario({ max: 1, connectionTimeoutMillis: 5_000 });
  afterEach(() => expectUsable(scenario.pool));

  async function order(tx: pg.PoolClient): Promise<void> {
    await tx.query(insertOrder, ['1']);
  }

  describe('the connection is lost', () => {
    test('inside the work: the work’s own error, and nothing is written', async () => {
      const failing = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit(orderCreated('1'));
        scenario.proxy.cut();
        await tx.query('select 1');
      });
      await expect(failing).rejects.toThrow(/Connection terminated|ECONNRESET/);
      expect(await written(scenario.database)).toEqual(nothing);
    });

    test('inside the work, which swallows it: certainly not committed', async () => {
      const failing = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit(orderCreated('1'));
        scenario.proxy.cut();
        await tx.query('select 1').catch(() => {});
      });
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
      expect(await written(scenario.database)).toEqual(nothing);
    });

    test.each([
      ['before COMMIT arrives', 'holdRequest', nothing],
      ['before its answer arrives', 'holdAnswer', one],
    ] as const)('%s: the outcome is unknown, and says so', async (_when, hold, left) => {
      for (const pipeline of [true, false]) {
        await clear(scenario.database);
        const commit = scenario.proxy[hold]({ text: /^commit$/ });
        const unknown = scenario.outbox.transaction(
          async (tx, emit) => {
            await order(tx);
            await emit(orderCreated('1'));
          },
          { pipeline },
        );
        await commit.caught;
        commit.cut();
        await expect(unknown).rejects.toMatchObject({ code: 'POSTCOMMIT_E_COMMIT_UNKNOWN' });
        // Waits for the lost session to end, if the server has not noticed yet.
        await scenario.database.query('do $$ begin lock table orders in access exclusive mode; end $$');
        expect(await written(scenario.database)).toEqual(left);
      }
    });

    test('the server ends the session at COMMIT', async () => {
      const commit = scenario.proxy.holdRequest({ text: /^commit$/ });
      const unknown = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit(orderCreated('1'));
      });
      unknown.catch(() => {}); // It may fail before the test awaits it.
      await commit.caught;
      await scenario.database.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()`,
      );
      commit.release();
      await expect(unknown).rejects.toMatchObject({ code: 'POSTCOMMIT_E_COMMIT_UNKNOWN' });
    });
  });

  describe('what the driver says of a failed COMMIT', () => {
    const failed = (message: string, code?: string) => Object.assign(new Error(message), code ? { code } : {});

    /** A pool of one client that answers everything but COMMIT. */
    function failingAtCommit(error: Error): Outbox<PgClient> {
      const client = {
        query: async (text: string) => {
          if (text === 'commit') throw error;
          return { rows: [], command: '' };
        },
        release: () => {},
      };
      return createOutbox({ db: fromPg({ connect: async () => client, query: client.query, on: () => {} }) });
    }

    test.each([
      failed('read ECONNRESET', 'ECONNRESET'),
      failed('write EPIPE', 'EPIPE'),
      failed('Connection terminated unexpectedly'),
      failed('Query read timeout'),
      failed('an unknown error'),
      failed('terminating connection due to administrator command', '57P01'),
      failed('connection failure', '08006'),
    ])('%s: the outcome is unknown', async (error) => {
      const unknown = failingAtCommit(error).transaction((_tx, emit) => emit(orderCreated('1')));
      await expect(unknown).rejects.toMatchObject({ code: 'POSTCOMMIT_E_COMMIT_UNKNOWN', cause: error });
    });

    test.each([
      failed('could not serialize access', '40001'),
      failed('duplicate key value', '23505'),
      failed('canceling statement due to statement timeout', '57014'),
    ])('%s: certainly not committed, and told as it is', async (error) => {
      await expect(failingAtCommit(error).transaction(async () => {})).rejects.toBe(error);
    });
  });

  describe('round trips', () => {
    test('BEGIN travels with the first statement, and the events with COMMIT', async () => {
      const begin = scenario.proxy.holdAnswer({ text: /^begin;/ });
      const emit = scenario.proxy.holdAnswer({ text: /emit/ });
      const done = scenario.outbox.transaction(async (tx, emit) => {
        await order(tx);
        await emit([orderCreated('1'), orderCreated('2')]);
      });
      await begin.caught;
      // Nothing can be sent in answer to BEGIN now: what is here was sent without waiting for it.
      expect(scenario.proxy.count({ text: /^insert into orders/ })).toBe(1);
      expect(scenario.proxy.count({ text: /emit/ })).toBe(0);
      begin.release();
      await emit.caught;
      expect(scenario.proxy.count({ text: /^commit$/ })).toBe(1);
      emit.release();
      await done;
      expect(scenario.proxy.count({ text: /./ })).toBe(4);
    });

    test('pipeline: false waits for each answer', async () => {
      const begin = scenario.proxy.holdAnswer({ text: /^begin;/ });
      const emit = scenario.proxy.holdAnswer({ text: /emit/ });
      const done = scenario.outbox.transaction(
        async (tx, emit) => {
          await order(tx);
          await emit(orderCreated('1'));
        },
        { pipeline: false },
      );
      await begin.caught;
      expect(scenario.proxy.count({ text: /^insert into orders/ })).toBe(0);
      begin.release();
      await emit.caught;
      expect(scenario.proxy.count({ text: /^commit$/ })).toBe(0);
      emit.release();
      await done;
      expect(scenario.proxy.count({ text: /./ })).toBe(4);
    });

    test('emit(tx, events) is one statement, whatever their number', async () => {
      const client = await scenario.pool.connect();
      await client.query('begin');
      await scenario.outbox.emit(
        client,
        Array.from({ length: 1_000 }, (_, i) => orderCreated(String(i))),
      );
      await client.query('commit');
      client.release();
      expect(scenario.proxy.count({ text: /./ })).toBe(3);
      expect(await written(scenario.database)).toEqual({ orders: 0, events: 1_000, queued: 1_000 });
    });
  });
});
