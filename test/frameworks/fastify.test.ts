import { fastify } from 'fastify';
import { fastify as fastifyTooOld } from 'fastify-4.15';
import { fastify as fastify4 } from 'fastify-4.16';
import type pg from 'pg';
import { afterEach, describe, expect, it } from 'vitest';
import { postcommit } from '../../src/frameworks/fastify.ts';
import { createOutbox, createRelay, fromPg, type Outbox, type Relay, type RelayOptions } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { deferred, until, within } from '../support/wait.ts';

declare module 'fastify' {
  interface FastifyInstance {
    outbox: Outbox<pg.PoolClient>;
    reports: Outbox<pg.PoolClient>;
  }
}

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function testDatabase(options: { migrate?: boolean } = {}): Promise<TestDatabase> {
  const db = await createTestDatabase(options);
  cleanups.push(() => db.close());
  return db;
}

function outboxOf(db: TestDatabase): Outbox<pg.PoolClient> {
  return createOutbox({ db: fromPg<pg.PoolClient>(db.pool) });
}

function relayOf(db: TestDatabase, options: Partial<RelayOptions> = {}): Relay {
  const handlers = { 'order.created': { ignore: () => {} } };
  const relay = createRelay({ connectionString: db.url, handlers, ...options });
  cleanups.push(() => relay.stop());
  return relay;
}

const liveRelays = (db: TestDatabase) => db.query('select name from postcommit.outbox_relays where ended_at is null');

// The oldest and the newest that the plugin accepts. Their types are the same for what is used here.
const versions = [
  ['4.16', fastify4 as unknown as typeof fastify],
  ['5', fastify],
] as const;

describe.each(versions)('the plugin with Fastify %s', (version, makeServer) => {
  it(`is that version`, () => {
    expect(makeServer().version).toMatch(new RegExp(`^${version}\\.`));
  });

  it('routes emit in their transaction, also those of other plugins, and the relay delivers', async () => {
    const db = await testDatabase();
    await db.query('create table orders (id text primary key)');
    const handled = deferred<unknown>();
    const relay = relayOf(db, {
      handlers: { 'order.created': { mail: async ({ payload }) => handled.resolve(payload) } },
    });
    const app = makeServer();
    cleanups.push(() => app.close());
    await app.register(postcommit, { outbox: outboxOf(db), relay });
    await app.register(async (routes) => {
      routes.post<{ Body: { id: string } }>('/orders', async ({ body: { id } }, reply) => {
        await routes.outbox.transaction(async (tx, emit) => {
          await tx.query('insert into orders (id) values ($1)', [id]);
          await emit({ type: 'order.created', aggregate: ['order', id], payload: { id } });
        });
        return reply.code(201).send({ id });
      });
    });
    expect(relay.stats().state).toBe('idle');
    await app.ready();
    expect(relay.stats().state).toBe('running');
    const order = { method: 'POST', url: '/orders', payload: { id: '1' } } as const;
    expect((await app.inject(order)).statusCode).toBe(201);
    expect((await app.inject(order)).statusCode).toBe(500); // The same id again: neither an order nor an event.
    expect(await within(handled.promise, { what: 'the event is handled' })).toEqual({ id: '1' });
    expect(await db.query('select from postcommit.outbox_events')).toHaveLength(1);
    await app.close();
    expect(relay.stats().state).toBe('idle');
    expect(await liveRelays(db)).toEqual([]);
  });

  it('stops the relay before pools close, whichever plugin was registered first, and lets work in flight finish', async () => {
    const db = await testDatabase();
    const started = deferred();
    const proceed = deferred();
    const relay = relayOf(db, {
      handlers: {
        'order.created': {
          async mail() {
            started.resolve();
            await proceed.promise;
            poolWasOpen = !poolClosed;
          },
        },
      },
    });
    let poolClosed = false;
    let poolWasOpen: boolean | undefined;
    const outbox = outboxOf(db);
    const app = makeServer();
    await app.register(postcommit, { outbox, relay });
    // Registered last, so this hook runs first.
    app.addHook('onClose', async () => {
      poolClosed = true;
    });
    await app.ready();
    await outbox.transaction((_tx, emit) => emit({ type: 'order.created', aggregate: ['order', '1'], payload: null }));
    await within(started.promise, { what: 'the handler works' });
    const closed = app.close();
    await until(() => relay.stats().state === 'stopping', { what: 'the relay stops' });
    proceed.resolve();
    await closed;
    expect(poolWasOpen).toBe(true);
    expect(poolClosed).toBe(true);
    expect(relay.stats()).toMatchObject({ state: 'idle', delivered: 1, released: 0 });
  });

  it('a relay that cannot start fails the start of the server', async () => {
    const db = await testDatabase({ migrate: false });
    const app = makeServer();
    cleanups.push(() => app.close());
    await app.register(postcommit, { outbox: outboxOf(db), relay: relayOf(db) });
    await expect(app.listen({ port: 0 })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    expect(app.server.listening).toBe(false);
  });

  it('two outboxes have two names, and one name twice is refused', async () => {
    const db = await testDatabase();
    const [outbox, reports] = [outboxOf(db), outboxOf(db)];
    const app = makeServer();
    await app.register(postcommit, { outbox });
    await app.register(postcommit, { outbox: reports, decorator: 'reports' });
    expect(app.outbox).toBe(outbox);
    expect(app.reports).toBe(reports);
    expect(app.hasPlugin('postcommit')).toBe(true);
    const again = async () => app.register(postcommit, { outbox }).ready();
    await expect(again()).rejects.toMatchObject({ code: 'FST_ERR_DEC_ALREADY_PRESENT' });
  });

  it.each([
    [{}, 'The Fastify plugin needs outbox'],
    [{ outbox: {} }, 'The Fastify plugin needs outbox'],
    [{ outbox: true, relays: 1 }, 'The Fastify plugin needs outbox'],
    [{ outbox: { emit() {} }, relay: {} }, 'relay must be what createRelay() returns'],
    [{ outbox: { emit() {} }, relays: 1 }, 'no option relays. Did you mean relay?'],
    [{ outbox: { emit() {} }, decorator: '' }, 'decorator must be the name of a property'],
  ])('refuses %o', async (options, message) => {
    const register = async () => makeServer().register(postcommit, options as never);
    const refused = register();
    await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    await expect(refused).rejects.toThrow(message);
  });

  it("takes Fastify's own options", async () => {
    const db = await testDatabase();
    const app = makeServer();
    await app.register(postcommit, { outbox: outboxOf(db), prefix: '/api', logLevel: 'warn' });
    expect(app.outbox).toBeDefined();
  });
});

it('Fastify refuses the plugin when it is too old, and says what is needed', async () => {
  const outbox = outboxOf(await testDatabase());
  // @ts-expect-error Its types have no preClose.
  const register = async () => fastifyTooOld().register(postcommit, { outbox }).ready();
  await expect(register()).rejects.toThrow("expected '^4.16.0 || ^5.0.0' fastify version, '4.15.0' is installed");
});

it('the types fit those of Fastify 4.16, and tell when the outbox is missing', async () => {
  const outbox = outboxOf(await testDatabase());
  const app = fastify4();
  await app.register(postcommit, { outbox, relay: relayOf(await testDatabase()) });
  expect(app.hasDecorator('outbox')).toBe(true);
  // @ts-expect-error There is no outbox.
  await expect(async () => fastify().register(postcommit, {})).rejects.toThrow('needs outbox');
  // @ts-expect-error The pool is no transaction.
  await expect(outbox.emit({ query() {} }, [])).rejects.toThrow();
});

it('a handler does not see the request context of the server', async () => {
  const { AsyncLocalStorage } = await import('node:async_hooks');
  const requests = new AsyncLocalStorage<string>();
  const db = await testDatabase();
  const seen = deferred<string | undefined>();
  const relay = relayOf(db, {
    handlers: { 'order.created': { mail: async () => seen.resolve(requests.getStore()) } },
  });
  const outbox = outboxOf(db);
  const app = fastify();
  cleanups.push(() => app.close());
  await app.register(postcommit, { outbox, relay });
  await requests.run('the one that started the server', () => app.ready());
  await requests.run('a request', () =>
    outbox.transaction((_tx, emit) => emit({ type: 'order.created', aggregate: ['order', '1'], payload: null })),
  );
  expect(await within(seen.promise, { what: 'the handler ran' })).toBeUndefined();
});
