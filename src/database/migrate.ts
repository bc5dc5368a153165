import pg from 'pg';
import { PostcommitError } from '../errors.ts';
import { packageVersion } from '../package-version.ts';
import { connectFirst, connectTimeoutMs, requireSession } from './connect.ts';
import { resolveConnectionForWriting } from './connection-options.ts';
import type { ServerList } from './connection-string.ts';
import { codedDatabaseError, sqlState } from './database-error.ts';
import type { Executor } from './executor.ts';
import { defaultSchema, doorbellChannel, quoteIdentifier, quoteLiteral } from './identifier.ts';
import type { MigrateOptions, MigrationSqlOptions, PartitionChoice } from './migrate-options.ts';
import { queryTimeoutMs, resolveMigrateOptions, resolveMigrationSqlOptions } from './migrate-options.ts';
import type { AppliedMigration, AppliedRoutine, Migration, Routine } from './migrations.ts';
import { checkHistory, findOutdated, inOrder, readScripts } from './migrations.ts';
import type { NotifyTriggerChange } from './notify-trigger.ts';
import { applyNotifyTrigger, findNotifyTriggerChange, notifyTriggerSql } from './notify-trigger.ts';
import { readSchemaCreators } from './schema-creators.ts';
import { rememberSettingsSql, restoreSettingsSql, transactionSettingsSql } from './statement-settings.ts';

export interface MigrateResult {
  schema: string;
  /** The names of the migrations that this call applied, or would apply, oldest first. Empty: none were left. */
  applied: string[];
  /** The names of the routines (SQL functions) that this call created or replaced, or would. Empty: all were up to date. */
  routines: string[];
  /** The version of the database after this call. */
  version: number;
  /** How the log is partitioned now; only if `partitions` was given, and not for a dry run. */
  partitions?: PartitionChoice;
  /** What this call did with the trigger that wakes relays, or would do; only if `notifyTrigger` was given. */
  notifyTrigger?: NotifyTriggerChange;
  /**
   * The seq of the next event, if the sequence of the log lagged and was moved up, or would be: after logical replication,
   * which copies rows but no sequences.
   */
  sequenceMovedTo?: string;
  /**
   * Roles besides the owner that may create objects in the schema, such as overloads of its functions. Only if there are any.
   */
  schemaCreators?: string[];
}

/** A line break in the name would end a comment that contains it, and the tag would end the body of a function. */
function requireWritable(schema: string): void {
  if (!/[\r\n]|\$postcommit\$/.test(schema)) return;
  throw new PostcommitError('POSTCOMMIT_E_BAD_SCHEMA_NAME', `Got ${JSON.stringify(schema)}.`);
}

function writeSchemaIn(source: string, schema: string): string {
  const asIdentifier = quoteIdentifier(schema);
  const asLiteral = quoteLiteral(schema);
  const channel = quoteIdentifier(doorbellChannel(schema));
  requireWritable(schema);
  // In one pass and with a function: the name itself may contain `$&`, or a placeholder.
  return source.replace(/:"schema"|:'schema(\.\w+)?'|:"channel"/g, (placeholder, relation?: string) => {
    if (relation !== undefined) return quoteLiteral(asIdentifier + relation);
    if (placeholder === ':"channel"') return channel;
    return placeholder === ':"schema"' ? asIdentifier : asLiteral;
  });
}

// A role without CREATE on the database may still own a schema created for it, and IF NOT EXISTS would be refused.
const createSchemaIfMissing = (schema: string) => `do $postcommit$ begin
  if to_regnamespace(${quoteLiteral(quoteIdentifier(schema))}) is null then create schema ${quoteIdentifier(schema)}; end if;
end $postcommit$`;

const bookkeeping = (schema: string) => `create table if not exists ${quoteIdentifier(schema)}.migrations (
  version    integer primary key,
  name       text not null,
  checksum   text not null,
  applied_at timestamptz not null default now()
);
create table if not exists ${quoteIdentifier(schema)}.outbox_routines (
  name            text primary key,
  checksum        text not null,
  package_version text not null,
  applied_at      timestamptz not null default now()
)`;

function record(schema: string, { version, name, checksum }: Migration | Routine): string {
  const s = quoteIdentifier(schema);
  const [nameText, checksumText] = [quoteLiteral(name), quoteLiteral(checksum)];
  if (version !== undefined) {
    return `insert into ${s}.migrations (version, name, checksum) values (${version}, ${nameText}, ${checksumText})`;
  }
  return `insert into ${s}.outbox_routines (name, checksum, package_version)
  values (${nameText}, ${checksumText}, ${quoteLiteral(packageVersion())})
  on conflict (name) do update set checksum = excluded.checksum, package_version = excluded.package_version, applied_at = now()`;
}

/**
 * All migrations and routines as SQL text, for teams that apply it with their own tool. It records what was applied as
 * `migrate()` does, so the two can be mixed. `after` omits the migrations up to that version. `ownTransaction: false` omits BEGIN
 * and COMMIT, for a tool that runs it in a transaction together with statements of its own.
 */
export function migrationSql(options: MigrationSqlOptions = {}): string {
  const schema = resolveMigrationSqlOptions(options);
  const { migrations, routines } = readScripts(options.inboxOnly);
  const scripts = inOrder(migrations, routines).filter(
    ({ version }) => version === undefined || version > (options.after ?? 0),
  );
  const choices = partitionNew(schema, options.partitions) + notifyTriggerSql(schema, options.notifyTrigger);
  const [first, last] =
    options.ownTransaction === false ? [rememberSettingsSql, restoreSettingsSql] : ['begin', 'commit'];
  return `${first};\n${transactionSettingsSql};\n${createSchemaIfMissing(schema)};\n${bookkeeping(schema)};\n\n${scriptsSql(schema, scripts)}${choices}${last};\n`;
}

/** Undoes `migrationSql()`, and loses all events. */
export function dropOutboxSql(schema: string = defaultSchema): string {
  return `drop schema if exists ${quoteIdentifier(schema)} cascade;\n`;
}

function scriptsSql(schema: string, scripts: readonly (Migration | Routine)[]): string {
  const parts = scripts.map((script) => {
    const file = script.version === undefined ? `routines/${script.name}` : script.name;
    return `-- ${file}\n${writeSchemaIn(script.source, schema)}\n${record(schema, script)};\n`;
  });
  return parts.join('\n');
}

/**
 * Brings the outbox's tables and routines up to date, and the sequence of the log if it lags behind its events. Safe to call from
 * any number of processes at once: they take turns, and later ones find nothing to do. Everything happens in one transaction, so
 * a failure changes nothing.
 *
 * @example
 * await migrate({ connectionString: process.env.DATABASE_URL! });
 */
export async function migrate(options: MigrateOptions): Promise<MigrateResult> {
  const { schema, lockTimeoutMs } = resolveMigrateOptions(options);
  requireWritable(schema);
  let client: pg.Client | undefined;
  try {
    client = await connect(resolveConnectionForWriting(options));
    if (options.dryRun) {
      await client.query(`begin read only; ${transactionSettingsSql}`);
      return await previewPending(client, schema, options);
    }
    // A process that waited for another one must see what that one has done, whatever the role's default isolation is.
    await client.query(
      `begin isolation level read committed read write; ${transactionSettingsSql}; set local lock_timeout = ${lockTimeoutMs}`,
    );
    // Transaction-scoped, so that it also works behind a transaction pooler.
    await client.query('select pg_advisory_xact_lock(hashtextextended($1, 42))', [`postcommit.migrate.${schema}`]);
    const result = await applyPending(client, schema, options.inboxOnly);
    const sequenceMovedTo = (await findSequenceLag(client, schema)) && (await repairSequence(client, schema));
    const partitions = await applyPartitions(client, schema, options.inboxOnly ? undefined : options.partitions);
    const schemaCreators = await readSchemaCreators(client, schema);
    const notifyTrigger = await applyNotifyTrigger(client, schema, options.notifyTrigger);
    await client.query('commit');
    return {
      ...result,
      ...(sequenceMovedTo && { sequenceMovedTo }),
      ...(partitions && { partitions }),
      ...(notifyTrigger && { notifyTrigger }),
      ...(schemaCreators.length > 0 && { schemaCreators }),
    };
  } catch (error) {
    if (sqlState(error) !== '55P03') throw codedDatabaseError(error);
    const why = `It was not free within ${lockTimeoutMs} ms (lockTimeoutMs); another process may be migrating.`;
    throw new PostcommitError('POSTCOMMIT_E_LOCK_TIMEOUT', why, { cause: error });
  } finally {
    await client?.end().catch(() => {});
  }
}

function connect(list: ServerList): Promise<pg.Client> {
  return connectFirst(list, async ({ config }) => {
    const client = new pg.Client({
      ...config,
      connectionTimeoutMillis: connectTimeoutMs(list, 10_000),
      query_timeout: queryTimeoutMs,
      keepAlive: true,
    });
    client.on('error', () => {}); // The failing query reports it. Without a listener, 'error' would end the process.
    try {
      await client.connect();
      await requireSession(client, list.attributes);
      return client;
    } catch (error) {
      client.end().catch(() => {}); // Not awaited: a silent peer never answers.
      throw error;
    }
  });
}

interface Pending {
  /** The version of the database. */
  version: number;
  /** What is left to apply, in order. */
  scripts: (Migration | Routine)[];
}

async function findPending(
  client: Executor,
  schema: string,
  { isMigrated, inboxOnly }: { isMigrated: boolean; inboxOnly: boolean | undefined },
): Promise<Pending> {
  const { migrations, routines } = readScripts(inboxOnly);
  const applied = isMigrated ? await readAppliedMigrations(client, schema) : [];
  checkHistory(readScripts().migrations, applied);
  const outdated = isMigrated ? findOutdated(routines, await readAppliedRoutines(client, schema)) : routines;
  const missing = migrations.filter(({ version }) => !applied.some((row) => row.version === version));
  const left = new Set<Migration | Routine>([...missing, ...outdated]);
  return {
    version: applied.at(-1)?.version ?? 0,
    scripts: inOrder(migrations, routines).filter((script) => left.has(script)),
  };
}

function resultOf(schema: string, version: number, scripts: readonly (Migration | Routine)[]): MigrateResult {
  const namesOf = (isRoutine: boolean) =>
    scripts.filter((script) => (script.version === undefined) === isRoutine).map(({ name }) => name);
  return { schema, applied: namesOf(false), routines: namesOf(true), version };
}

async function previewPending(
  client: Executor,
  schema: string,
  { inboxOnly, notifyTrigger: wanted }: MigrateOptions,
): Promise<MigrateResult> {
  const { isMigrated } = await inspectServer(client, schema);
  const { version, scripts } = await findPending(client, schema, { isMigrated, inboxOnly });
  const sequenceMovedTo = await findSequenceLag(client, schema);
  return {
    ...resultOf(schema, version, scripts),
    ...(sequenceMovedTo && { sequenceMovedTo }),
    ...(wanted !== undefined && { notifyTrigger: await findNotifyTriggerChange(client, schema, wanted) }),
  };
}

async function inspectServer(client: Executor, schema: string): Promise<{ isMigrated: boolean }> {
  const { rows } = await client.query(
    `select current_setting('server_version_num')::int as version, getdatabaseencoding() as encoding,
            to_regclass($1 || '.migrations') is not null as "isMigrated"`,
    [quoteIdentifier(schema)],
  );
  const server = rows[0] as { version: number; encoding: string; isMigrated: boolean };
  if (server.version < 140_000) {
    throw new PostcommitError('POSTCOMMIT_E_POSTGRES_TOO_OLD', `This server is ${server.version / 10_000}.`);
  }
  if (server.encoding === 'SQL_ASCII') {
    const why = 'The server then stores whatever bytes each client sends, so a relay cannot tell what a text says.';
    throw new PostcommitError('POSTCOMMIT_E_DATABASE_ENCODING', `It is SQL_ASCII. ${why}`);
  }
  return server;
}

async function readAppliedMigrations(client: Executor, schema: string): Promise<AppliedMigration[]> {
  const { rows } = await client.query(
    `select version, name, checksum from ${quoteIdentifier(schema)}.migrations order by version`,
  );
  return rows as unknown as AppliedMigration[];
}

async function readAppliedRoutines(client: Executor, schema: string): Promise<AppliedRoutine[]> {
  const { rows } = await client.query(
    `select name, checksum, package_version as "packageVersion" from ${quoteIdentifier(schema)}.outbox_routines`,
  );
  return rows as unknown as AppliedRoutine[];
}

async function applyPending(client: Executor, schema: string, inboxOnly: boolean | undefined): Promise<MigrateResult> {
  const { isMigrated } = await inspectServer(client, schema);
  // Only then: both need privileges that a role lacks that only starts a service on an up-to-date database.
  if (!isMigrated) {
    await client.query(createSchemaIfMissing(schema));
    await client.query(bookkeeping(schema));
  }
  const { version, scripts } = await findPending(client, schema, { isMigrated, inboxOnly });
  if (scripts.length > 0) await client.query(scriptsSql(schema, scripts));
  return resultOf(schema, Math.max(version, ...scripts.map((script) => script.version ?? 0)), scripts);
}

/** The seq that the log's sequence must be moved to; `undefined` if it does not lag, or this role may not read it. */
async function findSequenceLag(client: Executor, schema: string): Promise<string | undefined> {
  const s = quoteIdentifier(schema);
  const { rows: functions } = await client.query(
    `select from pg_proc where oid = to_regprocedure($1) and has_function_privilege(oid, 'execute')`,
    [`${s}.sequence_state()`],
  );
  if (functions.length === 0) return undefined;
  const { rows } = await client.query(
    `select needed_seq::text as needed from ${s}.sequence_state() where next_seq < needed_seq`,
  );
  return rows[0]?.needed as string | undefined;
}

async function repairSequence(client: Executor, schema: string): Promise<string | undefined> {
  try {
    const { rows } = await client.query(`select ${quoteIdentifier(schema)}.repair_sequence()::text as moved`);
    return (rows[0]?.moved as string | null) ?? undefined;
  } catch (error) {
    if (sqlState(error) !== '55P03') throw error;
    throw new PostcommitError('POSTCOMMIT_E_LOG_IN_USE', 'The sequence of the log must be moved up.', { cause: error });
  }
}

/** As a separate block, so that it can be printed. Does nothing for an outbox that has had events, or is partitioned. */
function partitionNew(schema: string, choice: PartitionChoice = 'none'): string {
  if (choice === 'none') return '';
  const [s, events] = [quoteIdentifier(schema), quoteLiteral(`${quoteIdentifier(schema)}.outbox_events`)];
  return `do $postcommit$ begin
  if (select relkind = 'r' from pg_class where oid = ${events}::regclass)
     and not (select is_called from ${s}.outbox_events_seq_seq) then
    perform ${s}.partition_log(${quoteLiteral(choice)}::text), ${s}.rotate_partitions(false);
  end if;
end $postcommit$;\n`;
}

async function applyPartitions(
  client: Executor,
  schema: string,
  choice: PartitionChoice | undefined,
): Promise<PartitionChoice | undefined> {
  if (choice === undefined) return undefined;
  if (choice !== 'none') await client.query(partitionNew(schema, choice));
  const { rows } = await client.query(
    `select value from ${quoteIdentifier(schema)}.outbox_settings where name = 'partitions'`,
  );
  return (rows[0]?.value as PartitionChoice | undefined) ?? 'none';
}
