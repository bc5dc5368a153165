import { randomUUID } from 'node:crypto';
import { describe, expect, onTestFinished, test } from 'vitest';
import { fromPrisma, type PrismaTransaction } from '../../src/adapters/prisma.ts';
import { createInbox, createOutbox, type OutboxDatabase } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { createOrders, insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';
import { openPrisma6, openPrisma7 } from './prisma-clients.ts';

type Prisma = ReturnType<typeof openPrisma7>['prisma'];
type Operation = { args: never; query(args: never): never };
type Extend = (prisma: Prisma) => object;

const inBatch = (prisma: Prisma, first: string) => ({
  async op({ args, query }: Operation) {
    const [, result] = await prisma.$transaction([prisma.$executeRawUnsafe(first), query(args)]);
    return result;
  },
});
const setTenant = `select set_config('app.tenant', 'acme', true)`;

/** Extensions that run raw statements in transactions of their own. */
const escaping: [string, Extend][] = [
  ['sets the tenant of every operation', (prisma) => ({ query: { $allOperations: inBatch(prisma, setTenant).op } })],
  [
    'sets the tenant of raw statements',
    (prisma) => ({
      query: { $queryRawUnsafe: inBatch(prisma, setTenant).op, $executeRawUnsafe: inBatch(prisma, setTenant).op },
    }),
  ],
  [
    'records every operation',
    (prisma) => ({ query: { $allOperations: inBatch(prisma, `insert into audit (text) values ('read')`).op } }),
  ],
  [
    'replaces the method',
    (prisma) => ({
      client: { $queryRawUnsafe: (text: string, ...values: unknown[]) => prisma.$queryRawUnsafe(text, ...values) },
    }),
  ],
];

describe.each([
  { version: 7, open: openPrisma7 },
  { version: 6, open: openPrisma6 as never as typeof openPrisma7 },
])('an extension of Prisma $version', ({ open }) => {
  async function scene(extend: Extend) {
    const database = await createTestDatabase();
    await createOrders(database);
    await database.query('create table audit (text text)');
    const { prisma, close } = open(database.url);
    onTestFinished(async () => {
      await close();
      await database.close();
    });
    const extended = prisma.$extends(extend(prisma)) as never as Prisma;
    const db = fromPrisma(extended);
    return { database, prisma, extended, outbox: createOutbox({ db, notify: false }), db };
  }
  const refused = { code: 'POSTCOMMIT_E_NOT_A_TRANSACTION', message: expect.stringContaining('extension') };

  test.each(escaping)('that %s: no event is written outside of the transaction', async (_, extend) => {
    const { database, extended, outbox, db } = await scene(extend);
    const id = randomUUID();
    const writes: ((tx: PrismaTransaction) => Promise<unknown>)[] = [
      (tx) => outbox.emit(tx as never, orderCreated('1')),
      (tx) => outbox.emit(tx as never, [orderCreated('1'), orderCreated('2')]),
      (tx) => outbox.emitOnce(tx as never, { ...orderCreated('1'), id }),
    ];
    for (const write of writes) {
      const failed = extended.$transaction(async (tx) => {
        await expect(write(tx)).rejects.toMatchObject(refused);
        await write(tx);
      });
      await expect(failed).rejects.toMatchObject(refused);
    }
    await expect(outbox.transaction(async (_tx, emit) => emit(orderCreated('1')))).rejects.toMatchObject(refused);
    const inbox = createInbox({ db: db as never as OutboxDatabase<PrismaTransaction> });
    const work = () => expect.unreachable();
    await expect(inbox.transaction({ consumer: 'billing', eventId: id }, work)).rejects.toMatchObject(refused);
    expect(await written(database)).toEqual(nothing);
    expect(await database.query('select from postcommit.processed_events')).toEqual([]);
  });

  test.each(escaping)('that %s: a batch contains the event', async (_, extend) => {
    const { database, prisma, extended, outbox } = await scene(extend);
    const inserted = () => prisma.$executeRawUnsafe(insertOrder, '1');
    const failed = extended.$transaction([inserted(), outbox.statement(orderCreated('1')), inserted()]);
    await expect(failed).rejects.toThrow();
    expect(await written(database)).toEqual(nothing);
    await extended.$transaction([inserted(), outbox.statement(orderCreated('1'))]);
    expect(await written(database)).toEqual(one);
  });

  test('that only looks on is taken, in any isolation', async () => {
    const seen: string[] = [];
    const { database, extended, outbox } = await scene(() => ({
      query: {
        async $allOperations({ operation, args, query }: Operation & { operation: string }) {
          seen.push(operation);
          return query(args);
        },
      },
    }));
    await extended.$transaction(async (tx) => {
      await tx.$executeRawUnsafe(insertOrder, '1');
      seen.length = 0;
      await outbox.emit(tx, orderCreated('1'));
      await outbox.emit(tx, orderCreated('1'));
      expect(seen).toHaveLength(4);
    });
    await outbox.transaction(async (_tx, emit) => emit(orderCreated('2')), { isolation: 'serializable' });
    expect(await written(database)).toEqual({ orders: 1, events: 3, queued: 3 });
  });

  test('of models costs nothing', async () => {
    const { database, extended, outbox } = await scene(() => ({
      model: { $allModels: { hello: () => 'hello' } },
      result: { order: { label: { needs: { id: true }, compute: ({ id }: { id: string }) => `order ${id}` } } },
      query: { order: { findMany: ({ args, query }: Operation) => query(args) } },
    }));
    await extended.$transaction(async (tx) => {
      await tx.$executeRawUnsafe(insertOrder, '1');
      const scoped = () => tx.$queryRawUnsafe(`select current_setting('postcommit.scope', true) as scope`);
      await outbox.emit(tx, orderCreated('1'));
      expect(await scoped()).toEqual([{ scope: null }]);
    });
    expect(await written(database)).toEqual(one);
  });
});
