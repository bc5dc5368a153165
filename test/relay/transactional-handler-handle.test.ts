import pg from 'pg';
import { describe, expect, test } from 'vitest';
import {
  createInbox,
  createOutbox,
  fromPg,
  type Handler,
  type HandlerContext,
  type Handlers,
  type RelayOptions,
} from '../../src/index.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { deferred, nextEvent, within } from '../support/wait.ts';

const refused = { code: 'POSTCOMMIT_E_NO_HANDLER_TRANSACTION' };
/** An event that fails is not called again during the test. */
const once: Partial<RelayOptions> = { pollIntervalMs: 50, retry: { delaysMs: [60_000] } };

/** With a table of effects. */
function withEffects(work: (scenario: RelayScenario) => Promise<void>): () => Promise<void> {
  return async () => {
    const scenario = await RelayScenario.create();
    try {
      await scenario.db.query('create table effects (what text)');
      await work(scenario);
    } finally {
      await scenario.close();
    }
  };
}

const effects = async (scenario: RelayScenario) =>
  (await scenario.db.query<{ what: string }>('select what from effects')).map(({ what }) => what);

const write = (tx: pg.ClientBase, what: string) => tx.query('insert into effects values ($1)', [what]);

const pidOf = async (tx: pg.ClientBase) => (await tx.query('select pg_backend_pid() as pid')).rows[0].pid as number;

const handled = (handle: Handler, more: object = {}): Handlers => ({
  scripted: { book: { handle, transactional: true, ...more } },
});

describe('ctx.tx that is kept longer than the call', () => {
  /** Runs the handler with the event `first`, and then `late`, with nothing else in its session, or in the call of another event. */
  async function runLate(
    scenario: RelayScenario,
    ending: 'delivered' | 'failed',
    isReused: boolean,
    handle: (ctx: HandlerContext) => Promise<unknown>,
    late: () => Promise<void>,
  ): Promise<void> {
    const pids: number[] = [];
    const [isIn, mayEnd] = [deferred(), deferred()];
    const relay = await scenario.relay('one', {
      ...once,
      handlers: handled(
        async (event, ctx) => {
          pids.push(await pidOf(ctx.tx));
          if (event.aggregate.id === 'first') return await handle(ctx);
          await write(ctx.tx, 'second');
          isIn.resolve();
          await mayEnd.promise;
        },
        { inFlightMax: 1 },
      ),
    });
    const ended = nextEvent(relay, ending);
    await scenario.emitLine('first', 1);
    await ended;
    if (!isReused) return await late();
    const secondEnded = nextEvent(relay, 'delivered');
    await scenario.emitLine('second', 1);
    await within(isIn.promise, { what: 'the second event is handled' });
    expect(pids[1]).toBe(pids[0]);
    await late();
    mayEnd.resolve();
    await secondEnded;
  }

  test.each([
    ['failed', 'is idle', false],
    ['failed', 'is in the transaction of another event', true],
    ['delivered', 'is idle', false],
    ['delivered', 'is in the transaction of another event', true],
  ] as const)('sends nothing after the outcome %s, while its session %s', async (ending, _state, isReused) => {
    await withEffects(async (scenario) => {
      const slow = deferred();
      let inserted: Promise<unknown> | undefined;
      const handle = async ({ tx }: HandlerContext) => {
        inserted = slow.promise.then(() => write(tx, 'late'));
        inserted.catch(() => {});
        if (ending === 'failed') await Promise.all([tx.query('select 1 / 0'), inserted]);
      };
      await runLate(scenario, ending, isReused, handle, async () => {
        slow.resolve();
        await expect(inserted).rejects.toMatchObject(refused);
      });
      expect(await effects(scenario)).toEqual(isReused ? ['second'] : []);
    })();
  });

  test(
    'refuses every way to send, and does not close the session',
    withEffects(async (scenario) => {
      const outbox = createOutbox({ db: fromPg(scenario.db.pool) });
      const sql = `insert into effects values ('late')`;
      let kept: HandlerContext | undefined;
      let tx!: pg.Client;
      let query!: pg.Client['query'];
      const handle = async (ctx: HandlerContext) => {
        kept = ctx;
        tx = ctx.tx as pg.Client;
        query = tx.query;
      };
      await runLate(scenario, 'delivered', true, handle, async () => {
        const byCallback = (send: (callback: (error?: Error) => void) => unknown) =>
          within(new Promise<Error | undefined>((done) => void send(done)), { what: 'the callback was called' });
        expect(() => kept?.tx).toThrow(expect.objectContaining(refused));
        await expect(tx.query({ text: sql })).rejects.toMatchObject(refused);
        await expect(query(sql)).rejects.toMatchObject(refused);
        expect(await byCallback((callback) => tx.query(sql, callback))).toMatchObject(refused);
        expect(await byCallback((callback) => tx.query(sql, [], callback))).toMatchObject(refused);
        type Submit = (query: pg.Query, callback?: (error?: Error) => void) => Parameters<typeof nextEvent>[0];
        const submit = tx.query as Submit;
        expect(await byCallback((callback) => submit(new pg.Query(sql), callback))).toMatchObject(refused);
        expect(await nextEvent(submit(new pg.Query(sql)), 'error')).toMatchObject(refused);
        const event = { type: 'late', aggregate: ['thing', 'late'] as const, payload: null };
        await expect(outbox.emit(tx as unknown as pg.PoolClient, event)).rejects.toMatchObject(refused);
        await expect(tx.end()).rejects.toMatchObject(refused);
        expect(await byCallback((callback) => tx.end(callback))).toMatchObject(refused);
      });
      expect(await effects(scenario)).toEqual(['second']);
      expect(await scenario.db.query('select 1 from postcommit.outbox_failures')).toEqual([]);
    }),
  );

  test(
    'is refused as soon as the handler has taken too long',
    withEffects(async (scenario) => {
      const late = deferred<unknown>();
      const handle: Handler = async (_event, { tx, signal }) => {
        const over = new Promise((resolve) => signal.addEventListener('abort', resolve));
        await over;
        await write(tx, 'late').then(late.resolve, late.reject);
      };
      await scenario.relay('one', { ...once, handlers: handled(handle, { timeoutMs: 100 }) });
      await scenario.emitLine('first', 1);
      await expect(within(late.promise, { what: 'it has written' })).rejects.toMatchObject(refused);
      expect(await effects(scenario)).toEqual([]);
    }),
  );

  test(
    'leaves no listener and no replaced method in its session',
    withEffects(async (scenario) => {
      const notices: unknown[] = [];
      let replaced = 0;
      const handle = async (ctx: HandlerContext) => {
        const tx = ctx.tx as pg.Client;
        tx.on('notice', ({ message }) => notices.push(message));
        const query = tx.query.bind(tx) as (...args: unknown[]) => Promise<unknown>;
        tx.query = ((...args: unknown[]) => {
          replaced++;
          return query(...args);
        }) as never;
        await tx.query(`do $$ begin raise notice 'first'; end $$`);
      };
      const relay = await scenario.relay('one', {
        ...once,
        handlers: handled(
          (event, ctx) =>
            event.aggregate.id === 'first' ? handle(ctx) : ctx.tx.query(`do $$ begin raise notice 'other'; end $$`),
          { inFlightMax: 1 },
        ),
      });
      await scenario.emitLine('first', 1);
      await scenario.emitLine('second', 1);
      await scenario.drained();
      expect(relay.stats().failed).toBe(0);
      expect(notices).toEqual(['first']);
      expect(replaced).toBe(1);
    }),
  );
});

test(
  'ctx.tx is a pg client for outbox and inbox, and relays are notified of what it emits after the commit',
  withEffects(async (scenario) => {
    const db = fromPg(scenario.db.pool);
    const [outbox, inbox] = [createOutbox({ db }), createInbox({ db })];
    const seen: unknown[] = [];
    const followed = deferred();
    await scenario.relay('one', {
      pollIntervalMs: 60_000,
      handlers: {
        ...handled(async (event, ctx) => {
          const tx = ctx.tx as pg.PoolClient;
          seen.push(tx instanceof pg.Client);
          for (const _delivery of [1, 2]) {
            const { duplicate } = await inbox.once(tx, { consumer: 'book', eventId: event.id }, () =>
              write(tx, 'book'),
            );
            seen.push(duplicate);
          }
          await outbox.emit(tx, { type: 'booked', aggregate: ['other', '1'], payload: null });
        }),
        booked: { note: () => followed.resolve() },
      },
    });
    await scenario.emitLine('a', 1);
    await within(followed.promise, { what: 'what it emitted was delivered' });
    expect(seen).toEqual([true, false, true]);
    expect(await effects(scenario)).toEqual(['book']);
  }),
);
