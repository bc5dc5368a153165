import { fromPrisma } from '../../src/adapters/prisma.ts';
import { createOutbox, type OutboxEvent } from '../../src/index.ts';
import type { Prisma as Prisma6, PrismaClient as PrismaClient6 } from './prisma6/generated/client.ts';
import type { Prisma as Prisma7, PrismaClient as PrismaClient7 } from './prisma7/generated/client.ts';

declare const event: OutboxEvent;
declare const prisma7: PrismaClient7;
declare const prisma6: PrismaClient6;
const extended = prisma7.$extends({ name: 'none' });
const outbox7 = createOutbox({ db: fromPrisma(prisma7) });
const outbox6 = createOutbox({ db: fromPrisma(prisma6) });
const outboxExtended = createOutbox({ db: fromPrisma(extended) });

void prisma7.$transaction((tx) => outbox7.emit(tx, event));
void prisma6.$transaction((tx) => outbox6.emit(tx, event));
void extended.$transaction((tx) => outboxExtended.emit(tx, event));
const inFunction7 = (tx: Prisma7.TransactionClient) => outbox7.emit(tx, event);
const inFunction6 = (tx: Prisma6.TransactionClient) => outbox6.emit(tx, event);
void [inFunction7, inFunction6];

// What the callback gets is the client's own type.
void outbox7.transaction(async (tx) => tx.order.create({ data: { id: '1' } }));
void outbox6.transaction(async (tx) => tx.order.create({ data: { id: '1' } }));

// A batch has the types of its elements.
void prisma7
  .$transaction([prisma7.order.create({ data: { id: '1' } }), outbox7.statement(event)])
  .then(([order, id]) => [order.id satisfies string, id satisfies string]);
void prisma6.$transaction([prisma6.order.create({ data: { id: '1' } }), outbox6.statement(event)]);

// @ts-expect-error The PrismaClient is no transaction.
void outbox7.emit(prisma7, event);
// @ts-expect-error The same for Prisma 6.
void outbox6.emit(prisma6, event);
// @ts-expect-error The same for a client with extensions.
void outboxExtended.emit(extended, event);
// @ts-expect-error A model is no transaction.
void outbox7.emit(prisma7.order, event);
// @ts-expect-error A transaction is no PrismaClient.
void prisma7.$transaction(async (tx) => fromPrisma(tx));
