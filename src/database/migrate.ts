import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import pg from 'pg';
import { PostcommitError } from '../errors.ts';
import { checkConnectionString } from './connection-string.ts';
import { codedDatabaseError } from './database-error.ts';
import type { Executor } from './executor.ts';
import { defaultSchema, quoteIdentifier, quoteLiteral } from './identifier.ts';

/** One numbered SQL file of the package. */
interface Migration {
  version: number;
  name: string;
  /** The file's text, schema not yet written in. */
  source: string;
  checksum: string;
}

interface AppliedMigration {
  version: number;
  checksum: string;
}

export interface MigrateOptions {
  /** Where to migrate. Needs the right to create the schema, or an existing schema it may create tables in. */
  connectionString: string;
  /** The schema that holds the outbox. Default `postcommit`. */
  schema?: string;
  /** Only tell what would be applied, and change nothing. Default `false`. */
  dryRun?: boolean;
}

export interface MigrateResult {
  schema: string;
  /** The names of the migrations that this call applied, or would apply, oldest first. Empty: it was up to date. */
  applied: string[];
  /** The version the database is at now. */
  version: number;
}

const directory = new URL('../../migrations/', import.meta.url);

function readMigrations(): Migration[] {
  return readdirSync(directory)
    .filter((file) => /^\d{4}_.+\.sql$/.test(file))
    .sort()
    .map((file) => {
      const source = readFileSync(new URL(file, directory), 'utf8');
      return {
        version: Number(file.slice(0, 4)),
        name: file.slice(0, -'.sql'.length),
        source,
        checksum: createHash('sha256').update(source).digest('hex'),
      };
    });
}

function writeSchemaIn(source: string, schema: string): string {
  const asIdentifier = quoteIdentifier(schema);
  const asLiteral = quoteLiteral(schema);
  // In one pass and by a function: the name itself may contain `$&`, or a placeholder.
  return source.replace(/:"schema"|:'schema'/g, (placeholder) =>
    placeholder === ':"schema"' ? asIdentifier : asLiteral,
  );
}

// A role without CREATE on the database may still own a schema made for it, and IF NOT EXISTS would be refused.
const createSchemaIfMissing = (schema: string) => `do $postcommit$ begin
  if to_regnamespace(${quoteLiteral(quoteIdentifier(schema))}) is null then create schema ${quoteIdentifier(schema)}; end if;
end $postcommit$`;

const bookkeeping = (schema: string) => `create table if not exists ${quoteIdentifier(schema)}.migrations (
  version    integer primary key,
  name       text not null,
  checksum   text not null,
  applied_at timestamptz not null default now()
)`;

const record = (schema: string, migration: Migration) =>
  `insert into ${quoteIdentifier(schema)}.migrations (version, name, checksum) values (${migration.version}, ${quoteLiteral(migration.name)}, ${quoteLiteral(migration.checksum)})`;

/**
 * The whole migration as SQL text, for teams that apply it with a tool of their own. It keeps the same books as
 * `migrate()`, so the two can be mixed. `after` leaves out the migrations up to that version.
 */
export function migrationSql(options: { schema?: string; after?: number } = {}): string {
  const schema = options.schema ?? defaultSchema;
  const parts = readMigrations()
    .filter((migration) => migration.version > (options.after ?? 0))
    .map((m) => `-- ${m.name}\n${writeSchemaIn(m.source, schema)}\n${record(schema, m)};\n`);
  return `begin;\n${createSchemaIfMissing(schema)};\n${bookkeeping(schema)};\n\n${parts.join('\n')}commit;\n`;
}

/**
 * Brings the outbox's tables up to date. Safe to call from any number of processes at once: they take turns, and
 * whoever comes later finds nothing to do. Everything happens in one transaction, so a failure changes nothing.
 *
 * @example
 * await migrate({ connectionString: process.env.DATABASE_URL! });
 */
export async function migrate(options: MigrateOptions): Promise<MigrateResult> {
  const schema = options.schema ?? defaultSchema;
  quoteIdentifier(schema);
  // Without one, pg would quietly take whatever database it finds on this host.
  if (typeof options.connectionString !== 'string' || options.connectionString === '') {
    throw new PostcommitError('POSTCOMMIT_E_NO_DATABASE_URL');
  }
  const client = new pg.Client({
    connectionString: checkConnectionString(options.connectionString),
    connectionTimeoutMillis: 10_000,
    // Long enough to wait for another process that migrates a large database, and no server that went silent hangs us.
    query_timeout: 600_000,
    keepAlive: true,
  });
  client.on('error', () => {}); // The failing query reports it; an unheard 'error' would end the process.
  try {
    await client.connect();
    if (options.dryRun) return await findPending(client, schema);
    await client.query('begin');
    // Transaction-scoped, so that it also works behind a transaction pooler.
    await client.query('select pg_advisory_xact_lock(hashtextextended($1, 42))', [`postcommit.migrate.${schema}`]);
    const result = await applyPending(client, schema);
    await client.query('commit');
    return result;
  } catch (error) {
    throw codedDatabaseError(error);
  } finally {
    await client.end().catch(() => {});
  }
}

async function findPending(client: Executor, schema: string): Promise<MigrateResult> {
  const { booksExist } = await inspectServer(client, schema);
  const migrations = readMigrations();
  const applied = booksExist ? await readBooks(client, schema) : [];
  checkHistory(migrations, applied);
  const pending = migrations.slice(applied.length);
  return { schema, applied: pending.map((m) => m.name), version: applied.at(-1)?.version ?? 0 };
}

async function inspectServer(client: Executor, schema: string): Promise<{ booksExist: boolean }> {
  const { rows } = await client.query(
    `select current_setting('server_version_num')::int as version,
            to_regclass($1 || '.migrations') is not null as "booksExist"`,
    [quoteIdentifier(schema)],
  );
  const server = rows[0] as { version: number; booksExist: boolean };
  if (server.version < 140_000) {
    throw new PostcommitError('POSTCOMMIT_E_POSTGRES_TOO_OLD', `This server is ${server.version / 10_000}.`);
  }
  return server;
}

async function readBooks(client: Executor, schema: string): Promise<AppliedMigration[]> {
  const { rows } = await client.query(
    `select version, checksum from ${quoteIdentifier(schema)}.migrations order by version`,
  );
  return rows as unknown as AppliedMigration[];
}

async function applyPending(client: Executor, schema: string): Promise<MigrateResult> {
  const { booksExist } = await inspectServer(client, schema);
  // Only then: both need rights that a role does not have who merely starts a service on an up-to-date database.
  if (!booksExist) {
    await client.query(createSchemaIfMissing(schema));
    await client.query(bookkeeping(schema));
  }

  const migrations = readMigrations();
  const applied = await readBooks(client, schema);
  checkHistory(migrations, applied);
  const pending = migrations.slice(applied.length);
  for (const migration of pending) {
    await client.query(writeSchemaIn(migration.source, schema));
    await client.query(record(schema, migration));
  }
  return { schema, applied: pending.map((m) => m.name), version: migrations.at(-1)?.version ?? 0 };
}

function checkHistory(migrations: Migration[], applied: AppliedMigration[]): void {
  const newest = applied.at(-1)?.version ?? 0;
  const known = migrations.at(-1)?.version ?? 0;
  if (newest > known) {
    throw new PostcommitError(
      'POSTCOMMIT_E_MIGRATION_NEWER',
      `The database is at ${newest}, this package knows ${known}.`,
    );
  }
  for (const [index, row] of applied.entries()) {
    const migration = migrations[index];
    if (migration?.version !== row.version || migration.checksum !== row.checksum) {
      throw new PostcommitError('POSTCOMMIT_E_MIGRATION_CHANGED', `It is number ${row.version}.`);
    }
  }
}
