import type { PrismaRoot, PrismaTransaction } from '../../src/adapters/prisma.ts';
import { fromPrisma } from '../../src/adapters/prisma.ts';
import type { OutboxDatabase } from '../../src/emit/outbox-database.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { type OpenPrisma, openPrisma6, openPrisma7 } from './prisma-clients.ts';
import { runAdapterConformance } from './run-conformance.ts';

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

runAdapterConformance('fromPrisma with Prisma 7', harness(openPrisma7, { nested: true }));
runAdapterConformance('fromPrisma with Prisma 6', harness(openPrisma6, { nested: false }));
