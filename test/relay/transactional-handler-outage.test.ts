import { randomBytes } from 'node:crypto';
import { describe, expect, test, vi } from 'vitest';
import { resolveConnection } from '../../src/database/connection-options.ts';
import { SessionPool } from '../../src/database/session-pool.ts';
import { type DeliveredEvent, grantsSql, type Handler, type Handlers, type RelayOptions } from '../../src/index.ts';
import type { ClaimedRow } from '../../src/outbox/delivering/claim.ts';
import { HandlerCall } from '../../src/relay/deliver/handler-call.ts';
import { HandlerTransaction } from '../../src/relay/deliver/handler-transaction.ts';
import { ConnectionLosses } from '../../src/relay/event/connection-losses.ts';
import { type Logger, SparseLog, silentLogger } from '../../src/telemetry/logging.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { deferred, until, within } from '../support/wait.ts';

const soon: Partial<RelayOptions> = { pollIntervalMs: 50 };

const handled = (handle: Handler): Handlers => ({ scripted: { book: { handle, transactional: true } } });

describe('a handler that gets no transaction', () => {
  type Line = { message: string; error?: string; suppressed?: number };

  function recorder(): { lines: Line[]; logger: Logger } {
    const lines: Line[] = [];
    return { lines, logger: { ...silentLogger, warn: (fields, message) => void lines.push({ ...fields, message }) } };
  }

  test(
    'because its role is at its connection limit is logged, sparsely, and costs no attempt',
    withScenario(async (scenario) => {
      const role = `limited_${randomBytes(4).toString('hex')}`;
      await scenario.db.query(grantsSql({ relay: role, create: true }));
      await scenario.db.query(`alter role ${role} password 'secret'`);
      try {
        const url = new URL(scenario.db.url);
        [url.username, url.password] = [role, 'secret'];
        const { lines, logger } = recorder();
        const attempts: number[] = [];
        const relay = await scenario.relay('one', {
          ...soon,
          connectionString: url.href,
          logger,
          handlers: handled((_event, { attempt }) => void attempts.push(attempt)),
        });
        await scenario.db.query(`alter role ${role} connection limit 1`); // It has its other connections.
        let releases = 0;
        relay.on('released', () => releases++);
        await scenario.emitLine('a', 1);
        await until(() => releases >= 2, { what: 'it was released twice' });
        const said = lines.filter(
          ({ message }) => message === 'cannot open a session for a transactional handler, retrying',
        );
        expect(said).toMatchObject([
          { handler: 'book', retryInMs: 1_000, error: expect.stringContaining('too many connections for role') },
        ]);
        await scenario.db.query(`alter role ${role} connection limit -1`);
        await scenario.drained();
        expect(attempts).toEqual([1]);
        await relay.stop();
      } finally {
        await scenario.db.query(`drop owned by ${role} cascade; drop role ${role}`);
      }
    }),
  );

  test(
    'because BEGIN fails is logged, and costs no attempt',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const { lines, logger } = recorder();
      const attempts: number[] = [];
      await scenario.relay('one', {
        ...soon,
        connectionString: proxy.url(scenario.db.url),
        logger,
        handlers: handled((_event, { attempt }) => void attempts.push(attempt)),
      });
      const begin = proxy.holdRequest({
        connection: 'handlers',
        text: /^begin isolation level read committed read write/,
      });
      await scenario.emitLine('a', 1);
      await within(begin.caught, { what: 'it begins' });
      begin.cut();
      await scenario.drained();
      expect(lines.filter(({ message }) => message.includes('handler'))).toMatchObject([
        {
          message: 'cannot begin the transaction of a handler, retrying',
          handler: 'book',
          retryInMs: 1_000,
          suppressed: 0,
          error: expect.stringContaining('database is unreachable'),
        },
      ]);
      expect(attempts).toEqual([1]);
    }),
  );
});

test(
  'a BEGIN that is never answered does not keep the relay from finding the outcome of a lost COMMIT',
  withScenario(async (scenario) => {
    await scenario.db.query('create table effects (what text)');
    await scenario.emitLine('a', 1);
    const [row] = await scenario.db.query<{ seq: string }>(
      'update postcommit.outbox_queue set claimed_by = 1 returning seq::text',
    );
    const seq = row?.seq as string;
    const proxy = await scenario.proxy();
    const pool = new SessionPool({
      servers: resolveConnection({ connectionString: proxy.url(scenario.db.url) }),
      applicationName: 'postcommit handlers',
    });
    const transaction = new HandlerTransaction(
      {
        schema: 'postcommit',
        pool,
        control: { connected: false, query: () => Promise.reject(new Error('not connected')) },
        token: () => '1',
        written: async () => {},
        logger: silentLogger,
      },
      new ConnectionLosses(),
      new SparseLog(),
      { seq, handler: 'book', targets: undefined },
      false,
    );
    const ended = deferred();
    const claimed = { seq, id: '', attempts: 0 } as ClaimedRow;
    const call = new HandlerCall(claimed, 'book', 1_000, { changed: () => {}, ended: () => {} }, () => ended.resolve());
    const commit = proxy.holdAnswer({ text: /^commit$/ });
    const begin = proxy.holdRequest({ text: /^begin isolation level read committed; set local lock_timeout/ });
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }); // Time limits of 15 s.
    try {
      const event = {} as DeliveredEvent;
      call.run(event, () =>
        transaction.run(call, event, 1_000, (_event, ctx) => ctx.tx.query(`insert into effects values ('book')`)),
      );
      await within(commit.caught, { what: 'it has committed' });
      commit.cut();
      await within(begin.caught, { what: 'the relay looks for the outcome' });
      await vi.advanceTimersByTimeAsync(15_000);
      await within(ended.promise, { what: 'the call has ended' });
    } finally {
      vi.useRealTimers();
      await pool.close();
    }
    expect(call.result).toBe('delivered');
    expect(transaction.outcome).toMatchObject({ kind: 'delivered' });
    expect(await scenario.db.query('select what from effects')).toEqual([{ what: 'book' }]);
  }),
);
