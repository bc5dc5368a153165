import type pg from 'pg';
import { describe, expect, test } from 'vitest';
import { resolveConnection } from '../../src/database/connection-options.ts';
import { SessionPool } from '../../src/database/session-pool.ts';
import {
  createOutbox,
  createRelay,
  type DeliveredEvent,
  fromPg,
  type Handler,
  type HandlerContext,
  type Handlers,
  type PostcommitError,
  Reject,
  type RelayOptions,
} from '../../src/index.ts';
import type { ClaimedRow } from '../../src/outbox/delivering/claim.ts';
import { HandlerCall } from '../../src/relay/deliver/handler-call.ts';
import { HandlerTransaction } from '../../src/relay/deliver/handler-transaction.ts';
import { ConnectionLosses, freeLossesMax } from '../../src/relay/event/connection-losses.ts';
import { SparseLog, silentLogger } from '../../src/telemetry/logging.ts';
import { statement } from '../support/postgres-proxy.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { deferred, nextEvent, until, within } from '../support/wait.ts';

const commit = { connection: 'handlers', text: /^commit$/ };
const soon: Partial<RelayOptions> = { pollIntervalMs: 50, retry: { delaysMs: [20, 20, 20] } };

describe.each(postgresVersions)('a transactional handler, on PostgreSQL %i', (version) => {
  /** With a table of effects. */
  function withEffects(work: (scenario: RelayScenario) => Promise<void>): () => Promise<void> {
    return async () => {
      const scenario = await RelayScenario.create({ serverUrl: serverUrlOf(version) });
      try {
        await scenario.db.query('create table effects (n serial, event_id uuid, key text, seq bigint)');
        await work(scenario);
      } finally {
        await scenario.close();
      }
    };
  }

  const effects = (scenario: RelayScenario) =>
    scenario.db.query<{ event_id: string; key: string }>('select event_id, key from effects order by n');

  const write = (event: DeliveredEvent, ctx: HandlerContext) =>
    ctx.tx.query('insert into effects (event_id, key, seq) values ($1, $2, $3)', [event.id, event.key, event.seq]);

  const handled = (handle: Handler, more: object = {}): Handlers => ({
    scripted: { book: { handle, transactional: true, ...more } },
  });

  const codes = async (scenario: RelayScenario) =>
    (await scenario.db.query('select code from postcommit.outbox_failures order by attempt')).map(({ code }) => code);

  const sessions = async (scenario: RelayScenario) =>
    scenario.db.query<{ state: string; query: string }>(
      `select state, query from pg_stat_activity
        where datname = current_database() and application_name like 'postcommit handlers%'`,
    );

  test(
    'its effects and the delivery commit together, in order per key, and what it emits follows',
    withEffects(async (scenario) => {
      const outbox = createOutbox({ db: fromPg(scenario.db.pool) });
      const next: string[] = [];
      const relay = await scenario.relay('one', {
        ...soon,
        handlers: {
          ...handled(async (event, ctx) => {
            await write(event, ctx);
            await outbox.emit(ctx.tx as pg.PoolClient, {
              type: 'booked',
              aggregate: ['thing', event.aggregate.id],
              payload: event.id,
            });
          }),
          booked: { note: (event: DeliveredEvent<string>) => void next.push(event.payload) },
        },
      });
      const ids = [...(await scenario.emitLine('a', 10)), ...(await scenario.emitLine('b', 10))];
      await scenario.drained();
      await until(() => next.length === 20, { what: 'what it emitted was delivered' });
      const done = (await effects(scenario)).map(({ event_id }) => event_id);
      expect([...done].sort()).toEqual([...ids].sort());
      for (const key of [ids.slice(0, 10), ids.slice(10)]) {
        expect(done.filter((id) => key.includes(id))).toEqual(key);
        expect(next.filter((id) => key.includes(id))).toEqual(key);
      }
      await until(() => relay.stats().delivered === 40, { what: 'each was counted once' });
      expect(relay.stats()).toMatchObject({ failed: 0, fenced: 0, released: 0 });
      const records = await scenario.db.query(
        `select count(*)::integer as n, array_agg(distinct d.targets::text) as targets from postcommit.outbox_events e
           join postcommit.outbox_deliveries d on d.seqs @> e.seq where e.event_type = 'scripted'`,
      );
      expect(records).toEqual([{ n: 20, targets: ['{book}'] }]);
    }),
  );

  test(
    'one that throws leaves nothing, and is called again; a rejected event is a dead letter',
    withEffects(async (scenario) => {
      const attempts: number[] = [];
      const relay = await scenario.relay('one', {
        ...soon,
        handlers: handled(async (event, ctx) => {
          await write(event, ctx);
          attempts.push(ctx.attempt);
          if (event.aggregate.id === 'bad') throw new Reject('never');
          if (ctx.attempt < 3) throw new Error('not yet');
        }),
      });
      const [id] = await scenario.emitLine('a', 1);
      await scenario.drained();
      expect(attempts).toEqual([1, 2, 3]);
      expect(await effects(scenario)).toEqual([{ event_id: id, key: 'thing:a' }]);
      await scenario.emitLine('bad', 1);
      await nextEvent(relay, 'deadLettered');
      expect(await effects(scenario)).toHaveLength(1);
    }),
  );

  test.each<[string, string, (tx: pg.ClientBase) => Promise<unknown>]>([
    ['hides a failed statement', 'POSTCOMMIT_E_TRANSACTION_ABORTED', (tx) => tx.query('select 1 / 0').catch(() => {})],
    ['rolls back itself', 'POSTCOMMIT_E_HANDLER_ENDED_TRANSACTION', (tx) => tx.query('rollback')],
    [
      'begins another transaction',
      'POSTCOMMIT_E_HANDLER_ENDED_TRANSACTION',
      async (tx) => {
        await tx.query('rollback');
        await tx.query('begin');
      },
    ],
    [
      'breaks a deferred constraint',
      'POSTCOMMIT_E_HANDLER_FAILED',
      (tx) =>
        tx.query(`create table parent (id int primary key);
                  create table child (id int references parent deferrable initially deferred);
                  insert into child values (1)`),
    ],
    ['closes its client', 'POSTCOMMIT_E_DATABASE_UNREACHABLE', (tx) => (tx as pg.Client).end()],
  ])('one that %s has failed, with nothing committed', async (_what, code, misbehave) => {
    await withEffects(async (scenario) => {
      await scenario.relay('one', {
        ...soon,
        handlers: handled(async (event, ctx) => {
          await write(event, ctx);
          if (ctx.attempt === 1) await misbehave(ctx.tx);
        }),
      });
      await scenario.emitLine('a', 2);
      await scenario.drained();
      expect(await codes(scenario)).toEqual([code, code]);
      expect(await effects(scenario)).toHaveLength(2);
    })();
  });

  test(
    'beside other targets of the event its progress is kept: they are tried again, it is not',
    withEffects(async (scenario) => {
      let failures = 0;
      await scenario.relay('one', {
        ...soon,
        handlers: {
          scripted: {
            first: { handle: write, transactional: true },
            second: { handle: write, transactional: true },
            flaky: ({ id }) => {
              if (failures++ < 2) throw new Error(`not yet ${id}`);
            },
          },
        },
      });
      await scenario.emitLine('a', 1);
      await scenario.drained();
      expect(failures).toBe(3);
      expect(await effects(scenario)).toHaveLength(2);
      const [record] = await scenario.db.query('select targets from postcommit.outbox_deliveries');
      expect([...record.targets].sort()).toEqual(['first', 'flaky', 'second']);
    }),
  );

  test(
    'beside another target that is still at work, a relay that is gone leaves its progress',
    withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const never = deferred();
      const handlers: Handlers = {
        scripted: { book: { handle: write, transactional: true }, slow: () => never.promise },
      };
      await scenario.relay('gone', {
        ...soon,
        leaseMs: 1_000,
        handlers,
        connectionString: proxy.url(scenario.db.url),
      });
      await scenario.emitLine('a', 1);
      await until(async () => (await effects(scenario)).length === 1, { what: 'one target has it' });
      proxy.refuse();
      proxy.cut();
      await scenario.relay('next', {
        ...soon,
        handlers: { scripted: { book: { handle: write, transactional: true }, slow: () => {} } },
      });
      await scenario.drained();
      expect(await effects(scenario)).toHaveLength(1);
      never.resolve();
      proxy.accept();
    }),
  );

  test.each([
    ['the answer to COMMIT is lost: it counts as delivered, once', 'holdAnswer', 1],
    ['COMMIT is lost: it is called again, and no attempt is counted', 'holdRequest', 2],
  ] as const)('%s', async (_what, hold, calls) => {
    await withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      let called = 0;
      const relay = await scenario.relay('one', {
        ...soon,
        connectionString: proxy.url(scenario.db.url),
        handlers: handled(async (event, ctx) => {
          called++;
          await write(event, ctx);
        }),
      });
      const caught = proxy[hold](commit);
      await scenario.emitLine('a', 1);
      await within(caught.caught, { what: 'it commits' });
      caught.cut();
      await scenario.drained();
      await until(() => relay.stats().delivered === 1, { what: 'it is counted' });
      expect(called).toBe(calls);
      expect(await effects(scenario)).toHaveLength(1);
      expect(await codes(scenario)).toEqual([]);
      expect(relay.stats()).toMatchObject({ failed: 0, fenced: 0 });
    })();
  });

  test(
    'a database that is lost while it works costs no attempt',
    withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const attempts: number[] = [];
      const working = deferred();
      const lost = deferred();
      const relay = await scenario.relay('one', {
        ...soon,
        retry: { attemptsMax: 1 },
        connectionString: proxy.url(scenario.db.url),
        handlers: handled(async (event, ctx) => {
          await write(event, ctx);
          if (attempts.push(ctx.attempt) > 1) return;
          working.resolve();
          await lost.promise;
          await write(event, ctx);
        }),
      });
      const ids = await scenario.emitLine('a', 2);
      await within(working.promise, { what: 'it works' });
      proxy.refuse();
      proxy.cut();
      lost.resolve();
      proxy.accept();
      await scenario.drained();
      expect(attempts).toEqual([1, 1, 1]);
      expect((await effects(scenario)).map(({ event_id }) => event_id)).toEqual(ids);
      expect(await codes(scenario)).toEqual([]);
      await until(() => relay.stats().delivered === 2, { what: 'both are counted' });
      expect(relay.stats()).toMatchObject({ failed: 0, deadLettered: 0 });
    }),
  );

  test(
    'a session that the server ends costs no attempt; an outage of what it calls does, and so does its own idle time',
    withEffects(async (scenario) => {
      const attempts: string[] = [];
      let calls = 0;
      await scenario.relay('one', {
        ...soon,
        handlers: handled(async (event, ctx) => {
          const { id } = event.aggregate;
          await write(event, ctx);
          attempts.push(`${id} ${ctx.attempt}`);
          if (id === 'ended' && ++calls === 1) await ctx.tx.query('select pg_terminate_backend(pg_backend_pid())');
          if (ctx.attempt > 1) return;
          if (id === 'http') throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
          if (id !== 'idle') return;
          const ended = deferred();
          (ctx.tx as pg.Client).once('end', () => ended.resolve());
          await ctx.tx.query('set local idle_in_transaction_session_timeout = 50');
          await within(ended.promise, { what: 'the server has ended its session' });
          await write(event, ctx);
        }),
      });
      await scenario.emit(['ended', 'http', 'idle'].map((aggregateId) => ({ aggregateId })));
      await scenario.drained();
      expect([...attempts].sort()).toEqual(['ended 1', 'ended 1', 'http 1', 'http 2', 'idle 1', 'idle 2']);
      expect([...(await codes(scenario))].sort()).toEqual([
        'POSTCOMMIT_E_DATABASE_UNREACHABLE',
        'POSTCOMMIT_E_HANDLER_FAILED',
      ]);
      expect(await effects(scenario)).toHaveLength(3);
    }),
  );

  test(
    'one that ends its own connection with every call becomes a dead letter',
    withEffects(async (scenario) => {
      const attempts: number[] = [];
      const relay = await scenario.relay('one', {
        ...soon,
        handlers: handled(async (_event, ctx) => {
          attempts.push(ctx.attempt);
          await ctx.tx.query('select pg_terminate_backend(pg_backend_pid())');
        }),
      });
      const dead = nextEvent(relay, 'deadLettered', 20_000);
      await scenario.emitLine('a', 1);
      await dead;
      expect(attempts).toEqual([1, 1, 1, 2, 3, 4]);
      expect(await codes(scenario)).toEqual(Array.from({ length: 4 }, () => 'POSTCOMMIT_E_DATABASE_UNREACHABLE'));
    }),
  );

  test(
    'a transaction that the server has not ended yet is waited for: it may commit',
    withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = await scenario.relay('one', {
        ...soon,
        connectionString: proxy.url(scenario.db.url),
        handlers: handled(write),
      });
      // The client sees a lost connection, and the server sees COMMIT later: the bytes are still on their way.
      const caught = proxy.holdRequest(commit);
      const ending = proxy.holdRequest({ connection: 'control', text: /pg_terminate_backend/ });
      await scenario.emitLine('a', 1);
      await within(caught.caught, { what: 'it commits' });
      const looks = () => proxy.count({ connection: 'handlers', text: /for update/ });
      // As a network does that loses the client's side only.
      proxy.cutClient(commit.connection);
      await until(() => looks() > 0, { what: 'the relay looks for the outcome' });
      caught.release();
      await scenario.drained();
      await until(() => relay.stats().delivered === 1, { what: 'it is counted' });
      ending.release();
      expect(await effects(scenario)).toHaveLength(1);
      expect(await codes(scenario)).toEqual([]);
    }),
  );

  test(
    'one that takes too long is ended on the server as well, and what it does later changes nothing',
    withEffects(async (scenario) => {
      const late = deferred<unknown>();
      await scenario.relay('one', {
        ...soon,
        handlers: handled(
          async (event, ctx) => {
            await write(event, ctx);
            if (ctx.attempt > 1) return;
            const { tx } = ctx;
            await tx.query('set local statement_timeout = 0');
            await tx.query('select pg_sleep(60)').catch(() => {});
            await tx.query('select 1').then(late.resolve, late.reject);
          },
          { timeoutMs: 300 },
        ),
      });
      await scenario.emitLine('a', 1);
      await scenario.drained();
      expect(await codes(scenario)).toEqual(['POSTCOMMIT_E_DELIVER_TIMEOUT']);
      expect(await effects(scenario)).toHaveLength(1);
      await expect(within(late.promise, { what: 'its next statement fails' })).rejects.toThrow();
      await until(async () => (await sessions(scenario)).every(({ query }) => !query.includes('pg_sleep')), {
        what: 'the statement has ended',
      });
    }),
  );

  test(
    'a session that could not be ended at once, without a control connection, is not ended later',
    withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const ended = deferred();
      const connects = () => proxy.count({ connection: 'control', text: /pg_is_in_recovery/ });
      const statements = () => proxy.count({ connection: 'control', text: /notify|outbox_/ });
      await scenario.relay('one', {
        ...soon,
        leaseMs: 3_000,
        connectionString: proxy.url(scenario.db.url),
        handlers: handled(
          async (event, ctx) => {
            await write(event, ctx);
            if (ctx.attempt > 1) return;
            proxy.refuse();
            proxy.cut('control');
            ctx.signal.addEventListener('abort', () => ended.resolve());
            await new Promise(() => {});
          },
          { timeoutMs: 500 },
        ),
      });
      await scenario.emitLine('a', 1);
      await within(ended.promise, { what: 'it has taken too long' });
      const [connectsBefore, statementsBefore] = [connects(), statements()];
      proxy.accept();
      await until(() => connects() > connectsBefore && statements() > statementsBefore, {
        what: 'the control connection is in use again',
      });
      await scenario.drained();
      expect(proxy.count({ text: /pg_terminate_backend/ })).toBe(0);
      expect(await codes(scenario)).toEqual(['POSTCOMMIT_E_DELIVER_TIMEOUT']);
    }),
  );

  test(
    'a session that has the process id of one that is gone is not ended',
    withEffects(async (scenario) => {
      const [control, other] = [await scenario.db.pool.connect(), await scenario.db.pool.connect()];
      const pool = new SessionPool({
        servers: resolveConnection({ connectionString: scenario.db.url }),
        applicationName: 'postcommit handlers',
      });
      try {
        const { rows } = await other.query<{ pid: number }>('select pg_backend_pid() as pid');
        const own = await pool.acquire();
        pool.acquire = async () => ({ ...own, pid: rows[0]?.pid });
        const transactions = new HandlerTransaction(
          {
            schema: 'postcommit',
            pool,
            control: { connected: true, query: (text, values) => control.query(text, values) },
            token: () => '1',
            written: async () => {},
            logger: silentLogger,
          },
          new ConnectionLosses(),
          new SparseLog(),
          { seq: '1', handler: 'book', targets: undefined },
          false,
        );
        const called = deferred();
        const row = { seq: '1', id: '', attempts: 0 } as ClaimedRow;
        const call = new HandlerCall(row, 'book', 1_000, { changed: () => {}, ended: () => {} }, () => {});
        const event = {} as DeliveredEvent;
        call.run(event, () =>
          transactions.run(call, event, 1_000, () => {
            called.resolve();
            return new Promise(() => {});
          }),
        );
        await within(called.promise, { what: 'it works' });
        call.checkTime(performance.now() + 2_000);
        await control.query('select 1'); // Answered after the statement that ends the session.
        expect((await other.query('select pg_backend_pid() as pid')).rows).toEqual(rows);
      } finally {
        await pool.close();
        control.release();
        other.release(true);
      }
    }),
  );

  test(
    'the server limits each statement to the time limit of the handler, or to less if the role says so',
    withEffects(async (scenario) => {
      const seen: string[] = [];
      const look = async (_event: DeliveredEvent, ctx: HandlerContext) => {
        const { rows } = await ctx.tx.query(
          `select current_setting('statement_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout') as s`,
        );
        seen.push(rows[0].s);
      };
      const first = await scenario.relay('one', { ...soon, handlers: handled(look, { timeoutMs: 7_000 }) });
      await scenario.emitLine('a', 1);
      await scenario.drained();
      await first.stop();
      const { hostname, port, pathname, username, password } = new URL(scenario.db.url);
      const { connectionString: _, ...rest } = { connectionString: '', ...soon };
      const second = createRelay({
        ...rest,
        connection: {
          host: hostname,
          port: Number(port),
          database: pathname.slice(1),
          user: decodeURIComponent(username),
          password: decodeURIComponent(password),
          statement_timeout: 2_000,
        },
        handlers: handled(look, { timeoutMs: 7_000 }),
      });
      await scenario.emitLine('a', 1);
      await second.runOnce();
      expect(seen).toEqual(['7s 7s', '2s 7s']);
    }),
  );

  test(
    'an event that is cancelled meanwhile leaves no effect',
    withEffects(async (scenario) => {
      const outbox = createOutbox({ db: fromPg(scenario.db.pool) });
      const working = deferred();
      const mayEnd = deferred();
      const relay = await scenario.relay('one', {
        ...soon,
        handlers: handled(async (event, ctx) => {
          await write(event, ctx);
          if (event.aggregate.id !== 'a') return;
          working.resolve();
          await mayEnd.promise;
        }),
      });
      const [id] = await scenario.emitLine('a', 1);
      await within(working.promise, { what: 'it works' });
      const cancelled = nextEvent(relay, 'cancelled');
      await outbox.admin.cancel({ ids: [id as string] });
      mayEnd.resolve();
      await cancelled;
      await scenario.emitLine('b', 1);
      await scenario.drained();
      expect((await effects(scenario)).map(({ key }) => key)).toEqual(['thing:b']);
    }),
  );

  test(
    'a relay that has lost its lease cannot commit',
    withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const working = deferred();
      const mayEnd = deferred();
      const stalled = await scenario.relay('stalled', {
        ...soon,
        leaseMs: 1_000,
        connectionString: proxy.url(scenario.db.url),
        handlers: handled(async (event, ctx) => {
          await write(event, ctx);
          working.resolve();
          await mayEnd.promise;
        }),
      });
      const settling = proxy.holdRequest({ connection: 'handlers', text: /settle_in_transaction/ });
      await scenario.emitLine('a', 1);
      await within(working.promise, { what: 'it works' });
      mayEnd.resolve();
      await within(settling.caught, { what: 'it settles' });
      proxy.stall('heartbeat');
      await scenario.relay('owner', { ...soon, handlers: handled(write) });
      await scenario.drained();
      settling.release();
      await until(async () => (await sessions(scenario)).every(({ state }) => state !== 'idle in transaction'), {
        what: 'it has ended its transaction',
      });
      expect(await effects(scenario)).toHaveLength(1);
      expect(stalled.stats().delivered).toBe(0);
      proxy.resume('heartbeat');
    }),
  );

  test(
    'it commits only when the results of earlier events of the key are durable',
    withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const called = deferred();
      await scenario.relay('one', {
        ...soon,
        connectionString: proxy.url(scenario.db.url),
        handlers: {
          plain: { first: () => {} },
          ...handled(async (event, ctx) => {
            await write(event, ctx);
            called.resolve();
          }),
        },
      });
      const settling = proxy.holdRequest({ connection: 'results', text: statement.settle });
      await scenario.emit([{ aggregateId: 'a', type: 'plain' }, { aggregateId: 'a' }]);
      await within(Promise.all([settling.caught, called.promise]), { what: 'both are handled' });
      const settles = () => proxy.count({ connection: 'handlers', text: /settle_in_transaction/ });
      await until(async () => (await sessions(scenario))[0]?.state === 'idle in transaction', {
        what: 'it has worked',
      });
      expect(settles()).toBe(0);
      expect(await effects(scenario)).toEqual([]);
      settling.release();
      await scenario.drained();
      expect(await effects(scenario)).toHaveLength(1);
    }),
  );

  /** Runs out of a time limit as long as `timeoutMs`, and ends then: a limit that began before is over as well. */
  function clock(timeoutMs: number): { over: Promise<void>; handlers: Handlers } {
    const { promise: over, resolve } = deferred();
    const handle: Handler = (_event, { attempt, signal }) => {
      if (attempt > 1) return;
      signal.addEventListener('abort', () => resolve());
      return new Promise(() => {});
    };
    return { over, handlers: { clock: { tick: { handle, timeoutMs } } } };
  }

  const failedTargets = async (scenario: RelayScenario) =>
    (await scenario.db.query('select target from postcommit.outbox_failures')).map(({ target }) => target);

  test.each([
    ['a connection', /pg_is_in_recovery/],
    ['BEGIN', /^begin isolation level read committed read write/],
  ])('its time limit does not count while it waits for %s', async (_what, text) => {
    await withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const attempts: number[] = [];
      const { over, handlers } = clock(300);
      await scenario.relay('one', {
        ...soon,
        connectionString: proxy.url(scenario.db.url),
        handlers: {
          ...handlers,
          ...handled(
            async (event, ctx) => {
              attempts.push(ctx.attempt);
              await write(event, ctx);
            },
            { timeoutMs: 300 },
          ),
        },
      });
      const waiting = proxy.holdRequest({ connection: 'handlers', text });
      await scenario.emitLine('a', 1);
      await within(waiting.caught, { what: 'it waits' });
      await scenario.emit([{ aggregateId: 'b', type: 'clock' }]);
      await within(over, { what: 'its time limit would be over' });
      waiting.release();
      await scenario.drained();
      expect(attempts).toEqual([1]);
      expect(await failedTargets(scenario)).toEqual(['tick']);
      expect(await effects(scenario)).toHaveLength(1);
    })();
  });

  test(
    'connections that are lost before it is called cost no attempt, however many',
    withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const attempts: number[] = [];
      await scenario.relay('one', {
        ...soon,
        connectionString: proxy.url(scenario.db.url),
        handlers: handled(async (event, ctx) => {
          attempts.push(ctx.attempt);
          await write(event, ctx);
        }),
      });
      const begin = { connection: 'handlers', text: /^begin isolation level read committed read write/ };
      let caught = proxy.holdRequest(begin);
      await scenario.emitLine('a', 1);
      for (let lost = 0; lost <= freeLossesMax; lost++) {
        await within(caught.caught, { what: 'it begins' });
        const next = lost < freeLossesMax ? proxy.holdRequest(begin) : caught;
        caught.cut();
        caught = next;
      }
      await scenario.drained();
      expect(attempts).toEqual([1]);
      expect(await codes(scenario)).toEqual([]);
    }),
  );

  test.each([
    ['its transaction stays open', 'set local idle_in_transaction_session_timeout = 0', [1]],
    ['the server ends its session', 'select 1', [1, 1]],
  ])('once it has returned, no time limit counts: %s', async (_what, sql, calls) => {
    await withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const attempts: number[] = [];
      const called = deferred();
      const { over, handlers } = clock(300);
      await scenario.relay('one', {
        ...soon,
        connectionString: proxy.url(scenario.db.url),
        handlers: {
          plain: { first: () => {} },
          ...handlers,
          ...handled(
            async (event, ctx) => {
              await write(event, ctx);
              await ctx.tx.query(sql);
              attempts.push(ctx.attempt);
              called.resolve();
            },
            { timeoutMs: 300 },
          ),
        },
      });
      const settling = proxy.holdRequest({ connection: 'results', text: statement.settle });
      await scenario.emit([{ aggregateId: 'a', type: 'plain' }, { aggregateId: 'a' }]);
      await within(Promise.all([settling.caught, called.promise]), { what: 'both are handled' });
      await scenario.emit([{ aggregateId: 'b', type: 'clock' }]);
      await within(over, { what: 'its time limit would be over' });
      settling.release();
      await scenario.drained();
      expect(attempts).toEqual(calls);
      expect(await failedTargets(scenario)).toEqual(['tick']);
      expect(await effects(scenario)).toHaveLength(1);
    })();
  });

  test(
    'its calls have at most inFlightMax connections, and a database that refuses one costs no attempt',
    withEffects(async (scenario) => {
      const proxy = await scenario.proxy();
      const attempts: number[] = [];
      let most = 0;
      const relay = await scenario.relay('one', {
        ...soon,
        connectionString: proxy.url(scenario.db.url),
        handlers: handled(
          async (event, ctx) => {
            await write(event, ctx);
            attempts.push(ctx.attempt);
            most = Math.max(most, (await sessions(scenario)).length);
          },
          { inFlightMax: 3 },
        ),
      });
      proxy.refuse();
      const released = nextEvent(relay, 'released');
      await scenario.emit(Array.from({ length: 30 }, (_, n) => ({ aggregateId: `a${n}` })));
      await released;
      proxy.accept();
      await scenario.drained();
      expect(attempts).toEqual(Array.from({ length: 30 }, () => 1));
      expect(most).toBeLessThanOrEqual(3);
      expect(await codes(scenario)).toEqual([]);
      await relay.stop();
      await until(async () => (await sessions(scenario)).length === 0, { what: 'its connections are closed' });
    }),
  );
});

test('options that contradict each other are refused, and ctx.tx belongs to transactional handlers', async () => {
  const relay = (handler: object) =>
    createRelay({ connectionString: 'postgres://localhost/x', handlers: { a: { b: handler as never } } });
  expect(() => relay({ handle: () => {}, transactional: 'yes' })).toThrow('transactional must be true or false');
  expect(() => relay({ handleBatch: () => {}, transactional: true })).toThrow('transactional and handleBatch');
  const scenario = await RelayScenario.create();
  try {
    const thrown: unknown[] = [];
    await scenario.relay('one', {
      handlers: {
        scripted: {
          plain: (_event, ctx) => {
            try {
              ctx.tx.query('select 1');
            } catch (error) {
              thrown.push(error);
            }
          },
        },
      },
    });
    await scenario.emitLine('a', 1);
    await scenario.drained();
    expect((thrown[0] as PostcommitError).code).toBe('POSTCOMMIT_E_NO_HANDLER_TRANSACTION');
  } finally {
    await scenario.close();
  }
});
