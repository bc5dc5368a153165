import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import type pg from 'pg';
import { installPackages } from '../../scripts/private-packages.ts';
import { generatePrisma } from '../../test/adapters/generate-prisma.ts';

/** The clients come from the private package of the tests of adapters. */
const packages = new URL('../../test/adapters/', import.meta.url);
const prisma7 = new URL('prisma7/', packages);
const requireClient = createRequire(new URL('package.json', packages));

export const clientPackageJson = (name: string): URL => new URL(`node_modules/${name}/package.json`, packages);

export function installClients(): void {
  installPackages(packages, 'the database clients whose adapters are measured');
  generatePrisma(prisma7, packages);
}

// biome-ignore lint/suspicious/noExplicitAny: the packages are installed when the benchmark runs, so their types may be missing.
type Module = any;

const importClient = (name: string): Promise<Module> => import(pathToFileURL(requireClient.resolve(name)).href);
/** The build is imported, not the source, so that no loader costs anything. */
const importAdapter = (name: string): Promise<Module> =>
  import(new URL(`../../dist/adapters/${name}.js`, import.meta.url).href);

/** A database client, as its users use it, and its adapter. */
export interface OpenClient {
  /** What createOutbox() takes. */
  db: unknown;
  /** Runs the work in a transaction of the client. */
  transaction(work: (tx: Module) => Promise<void>): Promise<unknown>;
  /** One statement of the transaction, with `$1`, `$2`, … bound to the values. */
  query(tx: Module, text: string, values: readonly unknown[]): PromiseLike<unknown>;
  close(): Promise<unknown>;
}

export interface BenchClient {
  name: string;
  /** Its package, for the version. */
  packageName: string;
  open(url: string, connections: number): Promise<OpenClient>;
}

const questionMarks = (text: string): string => text.replace(/\$\d+/g, '?');

const client = (name: string, packageName: string, open: BenchClient['open']): BenchClient => ({
  name,
  packageName,
  open,
});

async function drizzleOn(driver: string, adapter: string, connection: Module): Promise<OpenClient> {
  const { sql } = await importClient('drizzle-orm');
  const { drizzle } = await importClient(`drizzle-orm/${driver}`);
  const { fromDrizzle } = await importAdapter(adapter);
  const db = drizzle(connection);
  const statement = (text: string, values: readonly unknown[]) => {
    const parts = text.split(/\$\d+/);
    return sql.join(
      parts.flatMap((part, n) => (n === 0 ? [sql.raw(part)] : [sql.param(values[n - 1]), sql.raw(part)])),
    );
  };
  return {
    db: fromDrizzle(db),
    transaction: (work) => db.transaction(work),
    query: (tx, text, values) => tx.execute(statement(text, values)),
    close: () => connection.end(),
  };
}

const openPool = async (connectionString: string, max: number): Promise<pg.Pool> => {
  const { default: pg } = await importClient('pg');
  return new pg.Pool({ connectionString, max });
};

/** One entry per client: what `npm run bench -- emit` measures, beside `pg` in more detail. */
export const clients: readonly BenchClient[] = [
  client('pg', 'pg', async (url, connections) => {
    const pool = await openPool(url, connections);
    const { fromPg } = await importAdapter('pg');
    return {
      db: fromPg(pool),
      async transaction(work) {
        const connection = await pool.connect();
        try {
          await connection.query('begin');
          await work(connection);
          await connection.query('commit');
        } finally {
          connection.release();
        }
      },
      query: (tx, text, values) => tx.query(text, values),
      close: () => pool.end(),
    };
  }),
  client('postgres.js', 'postgres', async (url, connections) => {
    const { default: postgres } = await importClient('postgres');
    const { fromPostgresJs } = await importAdapter('postgres-js');
    const sql = postgres(url, { max: connections });
    return {
      db: fromPostgresJs(sql),
      transaction: (work) => sql.begin(work),
      // Prepared, as a statement in a template is.
      query: (tx, text, values) => tx.unsafe(text, values, { prepare: true }),
      close: () => sql.end(),
    };
  }),
  client('drizzle', 'drizzle-orm', async (url, connections) =>
    drizzleOn('node-postgres', 'drizzle', await openPool(url, connections)),
  ),
  client('drizzle on postgres.js', 'drizzle-orm', async (url, connections) => {
    const { default: postgres } = await importClient('postgres');
    return drizzleOn('postgres-js', 'drizzle', postgres(url, { max: connections }));
  }),
  client('kysely', 'kysely', async (url, connections) => {
    const { CompiledQuery, Kysely, PostgresDialect } = await importClient('kysely');
    const { fromKysely } = await importAdapter('kysely');
    const db = new Kysely({ dialect: new PostgresDialect({ pool: await openPool(url, connections) }) });
    return {
      db: fromKysely(db),
      transaction: (work) => db.transaction().execute(work),
      query: (trx, text, values) => trx.executeQuery(CompiledQuery.raw(text, [...values])),
      close: () => db.destroy(),
    };
  }),
  client('knex', 'knex', async (url, connections) => {
    const { default: knex } = await importClient('knex');
    const { fromKnex } = await importAdapter('knex');
    const db = knex({ client: 'pg', connection: url, pool: { min: 0, max: connections } });
    return {
      db: fromKnex(db),
      transaction: (work) => db.transaction(work),
      query: (trx, text, values) => trx.raw(questionMarks(text), values),
      close: () => db.destroy(),
    };
  }),
  client('prisma', '@prisma/client', async (url, connections) => {
    const { PrismaPg } = await importClient('@prisma/adapter-pg');
    const { PrismaClient } = await import(new URL('generated/client.ts', prisma7).href);
    const { fromPrisma } = await importAdapter('prisma');
    const pool = await openPool(url, connections);
    const prisma = new PrismaClient({ adapter: new PrismaPg(pool) });
    return {
      db: fromPrisma(prisma),
      transaction: (work) => prisma.$transaction(work),
      query: (tx, text, values) => tx.$executeRawUnsafe(text, ...values),
      async close() {
        await prisma.$disconnect();
        await pool.end();
      },
    };
  }),
  client('typeorm', 'typeorm', async (url, connections) => {
    const { DataSource } = await importClient('typeorm');
    const { fromTypeOrm } = await importAdapter('typeorm');
    const source = new DataSource({ type: 'postgres', url, poolSize: connections });
    await source.initialize();
    return {
      db: fromTypeOrm(source),
      transaction: (work) => source.transaction(work),
      query: (manager, text, values) => manager.query(text, [...values]),
      close: () => source.destroy(),
    };
  }),
  client('mikro-orm', '@mikro-orm/postgresql', async (url, connections) => {
    const { EntitySchema, MikroORM } = await importClient('@mikro-orm/postgresql');
    const { fromMikroOrm } = await importAdapter('mikro-orm');
    // MikroORM refuses to start without an entity.
    const properties = { id: { type: 'text', primary: true } };
    const order = new EntitySchema({ name: 'Order', tableName: 'orders', properties });
    const orm = await MikroORM.init({ entities: [order], clientUrl: url, pool: { min: 0, max: connections } });
    return {
      db: fromMikroOrm(orm),
      transaction: (work) => orm.em.fork().transactional(work),
      query: (em, text, values) =>
        em.getConnection().execute(questionMarks(text), [...values], 'run', em.getTransactionContext()),
      close: () => orm.close(true),
    };
  }),
  client('sequelize', 'sequelize', async (url, connections) => {
    const { Sequelize } = await importClient('sequelize');
    const { fromSequelize } = await importAdapter('sequelize');
    const sequelize = new Sequelize(url, { logging: false, pool: { max: connections } });
    return {
      db: fromSequelize(sequelize),
      transaction: (work) => sequelize.transaction(work),
      query: (transaction, text, values) => sequelize.query(text, { transaction, bind: [...values], raw: true }),
      close: () => sequelize.close(),
    };
  }),
];
