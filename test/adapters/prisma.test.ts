import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { codedPrismaError } from '../../src/adapters/prisma/errors.ts';
import type { PrismaRoot, PrismaTransaction } from '../../src/adapters/prisma.ts';
import { connectionOf, fromPrisma } from '../../src/adapters/prisma.ts';
import { createInbox, createOutbox, createRelay, type OutboxDatabase } from '../../src/index.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { createOrders, nothing, one, orderCreated, written } from '../support/orders.ts';
import { renamed, testChangedRows } from './changed-rows.ts';
import { countNotifications } from './notifications.ts';
import { runOrmChecks } from './orm-checks.ts';
import { type OpenPrisma, openPrisma6, openPrisma7, pg6 } from './prisma-clients.ts';
import { runAdapterConformance } from './run-conformance.ts';
import { testStalledServer } from './stalled-server.ts';

/** `nested`: Prisma 7 has nested transactions, Prisma 6 has none. */
function harness(open: (connectionString: string) => OpenPrisma<PrismaRoot>, { nested }: { nested: boolean }) {
  return async (connectionString: string): Promise<AdapterClient<PrismaTransaction>> => {
    const { prisma, close } = open(connectionString);
    return {
      db: fromPrisma(prisma) as OutboxDatabase<PrismaTransaction>,
      transaction: (work, { isolation } = {}) =>
        prisma.$transaction(work, {
          maxWait: 15_000,
          ...(isolation && { isolationLevel: isolation.replace(/(?:^| )./g, (match) => match.trim().toUpperCase()) }),
        }),
      query: async (tx, text, values = []) => tx.$executeRawUnsafe(text, ...values),
      ...(nested && { nested: (tx, work) => (tx as unknown as PrismaRoot).$transaction(work) }),
      notTransactions: { 'the PrismaClient': prisma },
      transactionWithTimeout: (timeout, work) => prisma.$transaction(work, { timeout, maxWait: 15_000 }),
      close,
    };
  };
}

/** An inbox has no use for batches. */
const forInbox = (db: object) => db as OutboxDatabase<PrismaTransaction>;

const versions = [
  { version: 7, connect: harness(openPrisma7, { nested: true }), open: openPrisma7, driver: pg },
  { version: 6, connect: harness(openPrisma6, { nested: false }), open: openPrisma6, driver: pg6 },
] as const;

for (const { version, connect, open, driver } of versions) {
  runAdapterConformance(`fromPrisma with Prisma ${version}`, connect);
  // Prisma has no hook for the end of a transaction, and its connections cannot be reached.
  runOrmChecks(`fromPrisma with Prisma ${version}`, connect, driver, { wakesAfterCommit: false, seesRawCommit: false });
  testStalledServer(`fromPrisma with Prisma ${version}`, (url) => {
    const { prisma, close } = (open as typeof openPrisma7)(url, { connectionTimeoutMillis: 300 });
    return { db: forInbox(fromPrisma(prisma)), close };
  });
  testChangedRows(`fromPrisma with Prisma ${version} and an extension`, (url) => {
    const { prisma, close } = (open as typeof openPrisma7)(url);
    const extended = prisma.$extends({
      query: {
        async $queryRawUnsafe({ args, query }) {
          const rows: object[] = await query(args);
          return rows.map(renamed);
        },
      },
    });
    return { db: forInbox(fromPrisma(extended)), close };
  });
}

describe.each(versions)('fromPrisma with Prisma $version', ({ open }) => {
  async function scene() {
    const database = await createTestDatabase();
    await createOrders(database);
    await database.query('alter table orders rename to conformance_orders');
    await database.query('alter table conformance_orders add total integer');
    await database.query('create view orders as select id from conformance_orders');
    // The two versions differ in types that do not matter here.
    const { prisma, close } = (open as typeof openPrisma7)(database.url);
    onTestFinished(async () => {
      await close();
      await database.close();
    });
    return { database, prisma, outbox: createOutbox({ db: fromPrisma(prisma) }) };
  }

  describe('outbox.statement', () => {
    test('is committed with the other statements of its batch, which returns the id', async () => {
      const { database, prisma, outbox } = await scene();
      const notifications = countNotifications();
      const [order, id] = await prisma.$transaction([
        prisma.order.create({ data: { id: '1' } }),
        outbox.statement(orderCreated('1')),
      ]);
      expect(order.id).toBe('1');
      expect(await written(database)).toEqual(one);
      expect(await outbox.admin.find(id)).toMatchObject({ id, status: 'PENDING' });
      expect(notifications()).toBe(1);
    });

    test('is rolled back with the other statements', async () => {
      const { database, prisma, outbox } = await scene();
      const failed = prisma.$transaction([
        prisma.order.create({ data: { id: '1' } }),
        outbox.statement(orderCreated('1')),
        prisma.order.create({ data: { id: '1' } }),
      ]);
      await expect(failed).rejects.toMatchObject({ code: 'P2002' });
      expect(await written(database)).toEqual(nothing);
    });

    test('an event that is refused fails the batch, and nothing is sent', async () => {
      const { database, prisma, outbox } = await scene();
      const failed = prisma.$transaction([
        prisma.order.create({ data: { id: '1' } }),
        outbox.statement({ ...orderCreated('1'), type: '' }),
      ]);
      await expect(failed).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_EVENT' });
      expect(await written(database)).toEqual(nothing);
    });

    test('errors of the database have codes', async () => {
      const { prisma, outbox } = await scene();
      const event = { ...orderCreated('1'), id: '0192f0c1-8f57-7000-8000-000000000001' };
      await prisma.$transaction([outbox.statement(event)]);
      await expect(prisma.$transaction([outbox.statement(event)])).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_DUPLICATE_ID',
      });
    });

    test('keeps the order of the batch', async () => {
      const { database, prisma, outbox } = await scene();
      const payloads = Array.from({ length: 20 }, (_, n) => n);
      await prisma.$transaction(payloads.map((payload) => outbox.statement(orderCreated('1', { payload }))));
      const rows = await database.query('select payload from postcommit.outbox_events order by seq');
      expect(rows.map(({ payload }) => payload)).toEqual(payloads);
    });

    test('is refused outside of a batch', async () => {
      const { database, outbox } = await scene();
      const refused = { code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' };
      await expect(outbox.statement(orderCreated('1'))).rejects.toMatchObject(refused);
      await expect(Promise.all([outbox.statement(orderCreated('1'))])).rejects.toMatchObject(refused);
      await expect(outbox.statement(orderCreated('1')).finally(() => {})).rejects.toMatchObject(refused);
      await expect(outbox.statement(orderCreated('1')).catch(async (error) => error)).resolves.toMatchObject(refused);
      expect(await written(database)).toEqual(nothing);
    });
  });

  test('an emit is not lost when Prisma sends it with a statement that fails', async () => {
    const { database, prisma, outbox } = await scene();
    await prisma.$transaction(async (tx) => {
      const [failed] = await Promise.allSettled([
        // It succeeds on the server, so the transaction goes on. Prisma cannot read the result.
        tx.$queryRawUnsafe(`select 'a'::tsvector`),
        outbox.emit(tx, orderCreated('1')),
      ]);
      expect(failed.status).toBe('rejected');
    });
    expect(await written(database)).toMatchObject({ events: 1 });
  });

  test('takes transactions of a client with extensions, and a client with extensions', async () => {
    const { database, prisma, outbox } = await scene();
    const extended = prisma.$extends({ name: 'none' });
    // At compile time, an outbox takes transactions of the client that it was made from.
    await extended.$transaction((tx) => outbox.emit(tx as never, orderCreated('1')));
    const other = createOutbox({ db: fromPrisma(extended), notify: false });
    await extended.$transaction((tx) => other.emit(tx, orderCreated('1')));
    await prisma.$transaction((tx) => other.emit(tx as never, orderCreated('1')));
    await extended.$transaction([extended.order.create({ data: { id: '1' } }), other.statement(orderCreated('1'))]);
    expect(await written(database)).toMatchObject({ orders: 1, events: 4 });
  });

  test('timeoutMs is the limit of outbox.transaction', async () => {
    const { database, prisma } = await scene();
    const outbox = createOutbox({ db: fromPrisma(prisma, { timeoutMs: 100 }), notify: false });
    const late = outbox.transaction(async (tx) => {
      await outbox.emit(tx, orderCreated('1'));
      await tx.$executeRawUnsafe('select pg_sleep(0.3)');
    });
    await expect(late).rejects.toMatchObject({ code: 'P2028' });
    expect(await written(database)).toEqual(nothing);
    const inbox = createInbox({ db: forInbox(fromPrisma(prisma, { timeoutMs: 100 })) });
    const lateEvent = inbox.transaction({ consumer: 'billing', eventId: randomUUID() }, async (tx) =>
      tx.$executeRawUnsafe('select pg_sleep(0.3)'),
    );
    await expect(lateEvent).rejects.not.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
  });

  test('connectionOf() tells a relay where the database is', async () => {
    const { database, prisma, outbox } = await scene();
    const delivered: unknown[] = [];
    const relay = createRelay({
      ...connectionOf(prisma),
      handlers: { 'order.created': { note: async ({ payload }) => void delivered.push(payload) } },
    });
    await relay.start();
    onTestFinished(() => relay.stop());
    await prisma.$transaction([outbox.statement(orderCreated('1'))]);
    await expect.poll(() => delivered).toEqual([{ id: '1' }]);
    await relay.stop();
    expect(connectionOf(prisma)).toEqual({ connectionString: database.url });
  });

  test('names the mistake', async () => {
    const { prisma, outbox } = await scene();
    await expect(outbox.emit(prisma as never, orderCreated('1'))).rejects.toThrow(
      /the PrismaClient.*prisma\.\$transaction\(async \(tx\).*outbox\.statement/,
    );
    expect(() => fromPrisma({} as typeof prisma)).toThrow(/takes a PrismaClient/);
    await prisma.$transaction(async (tx) => {
      expect(() => fromPrisma(tx as unknown as typeof prisma)).toThrow(/takes a PrismaClient/);
    });
    const like = (inside: object) =>
      ({ $connect() {}, $queryRawUnsafe() {}, $transaction() {}, ...inside }) as unknown as typeof prisma;
    expect(() => fromPrisma(like({ _activeProvider: 'mysql' }))).toThrow(/provider postgresql.*mysql/);
    expect(() => fromPrisma(like({ _clientVersion: '5.22.0' }))).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_PACKAGE_TOO_OLD',
        message: expect.stringContaining('This is @prisma/client 5.22.0, and 6.0.0 or later is needed.'),
      }),
    );
  });
});

test.each(['commits', 'rolls back'])('a nested transaction of Prisma 7 is refused after it %s', async (outcome) => {
  const database = await createTestDatabase();
  await createOrders(database);
  const { prisma, close } = openPrisma7(database.url);
  onTestFinished(async () => {
    await close();
    await database.close();
  });
  const outbox = createOutbox({ db: fromPrisma(prisma), notify: false });
  await prisma.$transaction(async (tx) => {
    let kept = tx;
    const nested = tx.$transaction(async (inner) => {
      kept = inner as typeof tx;
      await outbox.emit(kept, orderCreated('1'));
      if (outcome === 'rolls back') throw new Error('changed my mind');
    });
    await nested.catch((error: Error) => expect(error.message).toBe('changed my mind'));
    await expect(outbox.emit(kept, orderCreated('2'))).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
      message: expect.stringContaining('This transaction has ended.'),
    });
    await outbox.emit(tx, orderCreated('3'));
  });
  const rows = await database.query('select aggregate_id as id from postcommit.outbox_events order by seq');
  expect(rows.map(({ id }) => id)).toEqual(outcome === 'commits' ? ['1', '3'] : ['3']);
});

// Prisma 6 waits for a driver adapter without a limit.
test('a transaction of Prisma 7 that gets no connection within maxWaitMs is an outage', async () => {
  const database = await createTestDatabase();
  const { prisma, close } = openPrisma7(database.url, { max: 1 });
  onTestFinished(async () => {
    await close();
    await database.close();
  });
  const inbox = createInbox({ db: forInbox(fromPrisma(prisma, { maxWaitMs: 200 })) });
  await prisma.$transaction(async (tx) => {
    await tx.$executeRawUnsafe('select 1');
    const late = inbox.transaction({ consumer: 'billing', eventId: randomUUID() }, () => {});
    await expect(late).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE',
      cause: { cause: { code: 'P2028' } },
    });
  });
});

test.each([
  { code: 'P1001' },
  { code: 'P1002' },
  { code: 'P1008' },
  { code: 'P1017' },
  { code: 'P2024' },
  { code: 'P2028', message: 'Transaction API error: Unable to start a transaction in the given time.' },
  // Of a PrismaClientInitializationError.
  { errorCode: 'P1001' },
])('the error %o is an outage', (fields) => {
  const error = codedPrismaError(Object.assign(new Error('no connection'), fields));
  expect(error).toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
});

test.each([
  ['another driver adapter', { adapter: { adapterName: '@prisma/adapter-neon' } }],
  ['no driver adapter', {}],
])('connectionOf() says so for a client with %s', (_what, engineConfig) => {
  expect(() => connectionOf({ _engineConfig: engineConfig })).toThrow(
    expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringContaining('connectionString') }),
  );
});

test('connectionOf() passes on what is beside the URL, and not what the URL says', () => {
  const config = {
    connectionString: 'postgres://shop@db.example.com/shop',
    user: 'ignored',
    password: 'secret',
    ssl: { ca: 'ca' },
    max: 10,
  };
  expect(connectionOf({ _engineConfig: { adapter: { adapterName: '@prisma/adapter-pg', config } } })).toEqual({
    connectionString: 'postgres://shop@db.example.com/shop',
    connection: { password: 'secret', ssl: { ca: 'ca' } },
  });
});

test('a misspelt option of fromPrisma() is refused', () => {
  const options = { timeout: 5_000 };
  expect(() => fromPrisma({} as never, options as never)).toThrow(
    expect.objectContaining({
      code: 'POSTCOMMIT_E_BAD_OPTION',
      message: expect.stringContaining('fromPrisma() has no option timeout.'),
    }),
  );
});
