import { execFile } from 'node:child_process';
import * as fs from 'node:fs';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate as drizzleMigrate } from 'drizzle-orm/node-postgres/migrator';
import knex from 'knex';
import { FileMigrationProvider, Kysely, Migrator as KyselyMigrator, PostgresDialect } from 'kysely';
import pg from 'pg';
import { Sequelize } from 'sequelize';
import { DataSource } from 'typeorm';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createOutbox, fromPg, migrate } from '../../src/index.ts';
import { runCli } from '../cli/run-cli.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { orderCreated } from '../support/orders.ts';
import * as mikroOrm6Migrations from './migrators/node_modules/@mikro-orm/migrations/index.js';
import * as mikroOrm6 from './migrators/node_modules/@mikro-orm/postgresql/index.js';
import { runner } from './migrators/node_modules/node-pg-migrate/dist/bundle/index.js';
import { SequelizeStorage, Umzug } from './migrators/node_modules/umzug/lib/index.js';
import * as mikroOrm7Migrations from './mikro-orm7/node_modules/@mikro-orm/migrations/index.js';
import * as mikroOrm7 from './mikro-orm7/node_modules/@mikro-orm/postgresql/index.js';

const here = fileURLToPath(new URL('./', import.meta.url));

/** All that one of the tools, JavaScript or SQL could take for something of its own. */
const awkward = ['o?x ?? :n :1 $1 $$ $', '{y} `t` \\ "q" \'l\' %s {z}'].join('');
// MikroORM reads the tables of all schemas, and does not escape quotes in their names.
const withoutQuotes = awkward.replace(/["']/g, '');

interface Tool {
  name: string;
  /** The folder below test/adapters whose packages the migration imports. */
  packages?: string;
  languages: readonly ('esm' | 'cjs')[];
  /** Applies all migrations of the folder with the tool, or undoes the last one. */
  run(scene: { url: string; folder: string; direction: 'up' | 'down' }): Promise<void>;
  hasDown?: boolean;
  /** Default: all that one could think of. */
  schema?: string;
}

const tools: Tool[] = [
  {
    name: 'knex',
    languages: ['esm', 'cjs'],
    async run({ url, folder, direction }) {
      const db = knex({ client: 'pg', connection: url, migrations: { directory: folder } });
      await db.migrate[direction === 'up' ? 'latest' : 'rollback']().finally(() => db.destroy());
    },
  },
  {
    name: 'typeorm',
    languages: ['esm', 'cjs'],
    async run({ url, folder, direction }) {
      const dataSource = new DataSource({ type: 'postgres', url, migrations: [join(folder, '*.{js,cjs}')] });
      await dataSource.initialize();
      const work = direction === 'up' ? dataSource.runMigrations() : dataSource.undoLastMigration();
      await Promise.resolve(work).finally(() => dataSource.destroy());
    },
  },
  {
    name: 'mikro-orm',
    packages: 'migrators',
    languages: ['esm', 'cjs'],
    run: mikroOrmRunner(mikroOrm6, mikroOrm6Migrations),
    schema: withoutQuotes,
  },
  {
    name: 'mikro-orm',
    packages: 'mikro-orm7',
    // Its migrator needs Node.js 22.
    languages: 'globSync' in fs ? ['esm'] : [],
    run: mikroOrmRunner(mikroOrm7 as never, mikroOrm7Migrations as never),
    schema: withoutQuotes,
  },
  {
    name: 'sequelize',
    languages: ['cjs'],
    async run({ url, folder, direction }) {
      const sequelize = new Sequelize(url, { logging: false });
      const umzug = new Umzug({
        migrations: {
          glob: join(folder, '*.{js,cjs}'),
          resolve({ name, path, context }) {
            const { up, down } = createRequire(import.meta.url)(path as string);
            return { name, up: () => up(context, Sequelize), down: () => down(context, Sequelize) };
          },
        },
        context: sequelize.getQueryInterface(),
        storage: new SequelizeStorage({ sequelize }),
        logger: undefined,
      });
      await umzug[direction]().finally(() => sequelize.close());
    },
  },
  {
    name: 'kysely',
    languages: ['esm', 'cjs'],
    async run({ url, folder, direction }) {
      const db = new Kysely<unknown>({
        dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url }) }),
      });
      const provider = new FileMigrationProvider({ fs: fs.promises, path: { join }, migrationFolder: folder });
      const migrator = new KyselyMigrator({ db, provider });
      const work = direction === 'up' ? migrator.migrateToLatest() : migrator.migrateDown();
      const { error } = await work.finally(() => db.destroy());
      if (error) throw error;
    },
  },
  {
    name: 'drizzle',
    languages: ['esm'],
    hasDown: false,
    async run({ url, folder }) {
      const pool = new pg.Pool({ connectionString: url });
      await drizzleMigrate(drizzle(pool), { migrationsFolder: folder }).finally(() => pool.end());
    },
  },
  {
    name: 'node-pg-migrate',
    languages: ['esm'],
    async run({ url, folder, direction }) {
      const log = () => {};
      await runner({ databaseUrl: url, dir: folder, direction, migrationsTable: 'pgmigrations', count: Infinity, log });
    },
  },
  {
    // `prisma migrate` needs an engine that is downloaded. It sends the file as one simple query, as is done here.
    name: 'prisma',
    languages: ['esm'],
    hasDown: false,
    async run({ url, folder }) {
      const [name = ''] = readdirSync(folder);
      expect(name).toMatch(/^\d{14}_postcommit$/);
      const client = new pg.Client(url);
      await client.connect();
      await client.query(readFileSync(join(folder, name, 'migration.sql'), 'utf8')).finally(() => client.end());
    },
  },
];

function mikroOrmRunner({ MikroORM }: typeof mikroOrm6, { Migrator }: typeof mikroOrm6Migrations): Tool['run'] {
  return async ({ url, folder, direction }) => {
    const orm = await MikroORM.init({
      clientUrl: url,
      entities: [],
      discovery: { warnWhenNoEntities: false },
      extensions: [Migrator],
      migrations: { path: folder, snapshot: false },
    });
    await orm.migrator[direction]().finally(() => orm.close(true));
  };
}

function projectFolder(packages: string, type: 'module' | 'commonjs'): string {
  // Below node_modules, so that the migration finds the tool's packages.
  const cache = join(here, packages, 'node_modules/.cache');
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, 'postcommit-migrations-'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ type }));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function scene(): Promise<TestDatabase> {
  const database = await createTestDatabase({ migrate: false });
  onTestFinished(() => database.close());
  return database;
}

const cases = tools.flatMap((tool) =>
  tool.languages.map((language) => ({
    ...tool,
    language,
    title: [tool.name, tool.packages ?? [], language].flat().join(' '),
  })),
);

describe.each(cases)(
  'postcommit sql --for $title',
  ({ packages = '.', hasDown = true, schema: other = awkward, ...tool }) => {
    const { name, language, run } = tool;
    test.each(['postcommit', other])('writes a migration that the tool runs, for the schema %s', async (schema) => {
      const database = await scene();
      const cwd = projectFolder(packages, language === 'esm' ? 'module' : 'commonjs');
      const { code, stderr, stdout } = await runCli(
        ['sql', '--for', name, '--schema', schema, '--output', 'out', '--partitions', 'day', '--notify-trigger'],
        { cwd },
      );
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      expect(stdout).toContain('wrote');
      const folder = join(cwd, 'out');

      await run({ url: database.url, folder, direction: 'up' });
      expect(await migrate({ connectionString: database.url, schema, dryRun: true })).toMatchObject({
        applied: [],
        routines: [],
      });
      const outbox = createOutbox({ db: fromPg(database.pool), schema, notify: false });
      await outbox.transaction([], orderCreated('1'));
      expect((await outbox.admin.counts()).pending).toBe(1);
      expect((await outbox.admin.partitions.list()).unit).toBe('day');

      if (name !== 'prisma') await run({ url: database.url, folder, direction: 'up' }); // Nothing is left to do.
      expect((await outbox.admin.counts()).pending).toBe(1);
      if (!hasDown) return;
      await run({ url: database.url, folder, direction: 'down' });
      expect(await database.query('select from pg_namespace where nspname = $1', [schema])).toEqual([]);
    });
  },
);

test('a drizzle journal is continued', async () => {
  const cwd = projectFolder('.', 'module');
  const folder = join(cwd, 'drizzle');
  const entry = { idx: 4, version: '7', when: Date.now() + 3_600_000, tag: '0004_orders', breakpoints: true };
  mkdirSync(join(folder, 'meta'), { recursive: true });
  writeFileSync(
    join(folder, 'meta/_journal.json'),
    JSON.stringify({ version: '7', dialect: 'postgresql', entries: [entry] }),
  );
  expect(await runCli(['sql', '--for', 'drizzle'], { cwd })).toMatchObject({ code: 0 });
  const { entries } = JSON.parse(readFileSync(join(folder, 'meta/_journal.json'), 'utf8'));
  expect(entries).toEqual([entry, { ...entry, idx: 5, when: entry.when + 1, tag: '0005_postcommit' }]);
  expect(readdirSync(folder).sort()).toEqual(['0005_postcommit.sql', 'meta']);
});

test('migrations in TypeScript compile', async () => {
  const cwd = projectFolder('.', 'module');
  const include: string[] = [];
  for (const name of ['knex', 'typeorm', 'sequelize', 'kysely']) {
    for (const after of ['0', '1']) {
      const output = `${name}-${after}`;
      const args = ['sql', '--for', name, '--language', 'ts', '--output', output, '--after', after];
      expect(await runCli(args, { cwd })).toMatchObject({ code: 0 });
      include.push(`${output}/*.ts`);
    }
  }
  const compilerOptions = { strict: true, noEmit: true, module: 'nodenext', skipLibCheck: true, noUnusedLocals: true };
  writeFileSync(
    join(cwd, 'tsconfig.json'),
    JSON.stringify({ compilerOptions: { ...compilerOptions, types: [] }, include }),
  );
  const tsc = fileURLToPath(new URL('../../node_modules/.bin/tsc', import.meta.url));
  const output = await promisify(execFile)(tsc, ['-p', cwd]).then(
    () => '',
    (error: { stdout: string }) => error.stdout,
  );
  expect(output).toBe('');
}, 120_000);
