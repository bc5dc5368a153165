import { createRequire } from 'node:module';
import { PrismaPg as PrismaPg7 } from '@prisma/adapter-pg';
import pg from 'pg';
import { endingConnections } from './pool-ends.ts';
import { PrismaClient as PrismaClient6 } from './prisma6/generated/client.ts';
import { PrismaPg as PrismaPg6 } from './prisma6/node_modules/@prisma/adapter-pg/dist/index.mjs';
import { PrismaClient as PrismaClient7 } from './prisma7/generated/client.ts';

// PrismaPg takes a pool of the `pg` it has itself.
export const pg6: typeof pg = createRequire(new URL('prisma6/', import.meta.url))('pg');

export interface OpenPrisma<Client> {
  prisma: Client;
  close(): Promise<void>;
}

export function openPrisma7(connectionString: string, settings: pg.PoolConfig = {}): OpenPrisma<PrismaClient7> {
  const pool = new pg.Pool({ connectionString, max: 6, ...settings });
  return closing(new PrismaClient7({ adapter: new PrismaPg7(pool) }), endingConnections(pool));
}

export function openPrisma6(connectionString: string, settings: pg.PoolConfig = {}): OpenPrisma<PrismaClient6> {
  const pool = new pg6.Pool({ connectionString, max: 6, ...settings });
  return closing(new PrismaClient6({ adapter: new PrismaPg6(pool) }), endingConnections(pool));
}

function closing<Client extends { $disconnect(): Promise<void> }>(prisma: Client, end: () => Promise<void>) {
  return {
    prisma,
    async close() {
      await end();
      await prisma.$disconnect();
    },
  };
}
