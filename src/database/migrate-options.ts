import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { unknownOption } from '../suggest.ts';
import type { ConnectionOptions } from './connection-options.ts';
import { defaultSchema, quoteIdentifier } from './identifier.ts';
import { checkNotifyTrigger } from './notify-trigger.ts';

/** How the log is partitioned: by day or month, so that retention drops whole partitions, or as one table. */
export type PartitionChoice = 'none' | 'day' | 'month';

export const partitionChoices: readonly PartitionChoice[] = ['none', 'day', 'month'];

/** The role needs the right to create the schema, or an existing schema in which it may create tables. */
export interface MigrateOptions extends ConnectionOptions {
  /** The schema that holds the outbox. Default `postcommit`. */
  schema?: string;
  /** Only report what would be applied, and change nothing. Default `false`. */
  dryRun?: boolean;
  /**
   * Only the inbox, `processed_events`: for the database of a consumer that emits nothing. A later call without it adds the outbox.
   * Not together with `partitions` or `notifyTrigger`. Default `false`.
   */
  inboxOnly?: boolean;
  /**
   * Partitioning of a new outbox. One that has had events is not changed: use `admin.partitions.convert()`. Partitions make
   * retention cheap for any number of events a day; an event's id is then unique only within its partition. Default `none`.
   */
  partitions?: PartitionChoice;
  /**
   * `true` installs a trigger that wakes relays when a transaction with events commits, so that they are prompt for plain
   * `INSERT` and `select postcommit.emit(...)` of any language; `false` removes it. It slows concurrent writers:
   * transactions with events commit one after the other (8 writers: about half the throughput; docs/emitting.md, also
   * about sessions that do without). Default: an existing trigger stays, and a new outbox has none.
   */
  notifyTrigger?: boolean;
  /**
   * How long to wait for another process that migrates this outbox, and for each lock on its tables, in milliseconds. Then it
   * fails with POSTCOMMIT_E_LOCK_TIMEOUT. Default 300,000 (5 minutes).
   */
  lockTimeoutMs?: number;
}

/** Options of `migrationSql()`. */
export interface MigrationSqlOptions
  extends Pick<MigrateOptions, 'schema' | 'inboxOnly' | 'partitions' | 'notifyTrigger'> {
  /** Leave out the migrations up to this version. Default 0: none. */
  after?: number;
  /** `false`: without BEGIN and COMMIT, for a tool that runs it in a transaction of its own. Default `true`. */
  ownTransaction?: boolean;
}

const lockTimeoutMsDefault = 300_000;
/** A statement without a result after this time has lost its connection. */
export const queryTimeoutMs = 600_000;

/** Complete by their types: an option that is added and not here does not compile. */
const sqlOptionNames: Record<keyof MigrationSqlOptions, true> = {
  schema: true,
  after: true,
  ownTransaction: true,
  inboxOnly: true,
  partitions: true,
  notifyTrigger: true,
};
const optionNames: Record<keyof MigrateOptions, true> = {
  connectionString: true,
  connection: true,
  schema: true,
  dryRun: true,
  inboxOnly: true,
  partitions: true,
  notifyTrigger: true,
  lockTimeoutMs: true,
};

/** Checks the options of `migrate()`, before anything is connected. */
export function resolveMigrateOptions(options: MigrateOptions): { schema: string; lockTimeoutMs: number } {
  const schema = checkShared('migrate', options, optionNames);
  if (options.dryRun !== undefined && typeof options.dryRun !== 'boolean') {
    throw refuse(`dryRun must be true or false. Got ${shown(options.dryRun)}.`);
  }
  const lockTimeoutMs = checkLockTimeout(options.lockTimeoutMs);
  // Without one, pg would silently use whatever database it finds on this host.
  if (!options.connectionString && options.connection === undefined) {
    throw refuse(
      'migrate() needs connectionString, or connection with host and database. It does not read DATABASE_URL itself: pass process.env.DATABASE_URL.',
    );
  }
  return { schema, lockTimeoutMs };
}

/** Checks the options of `migrationSql()`, and returns the schema. */
export function resolveMigrationSqlOptions(options: MigrationSqlOptions): string {
  return checkShared('migrationSql', options, sqlOptionNames);
}

function checkShared(name: string, options: MigrationSqlOptions, known: Readonly<Record<string, true>>): string {
  if (typeof options !== 'object' || options === null) throw refuse(`${name}() takes an object of options.`);
  // A misspelt dryRun would migrate.
  const unknown = unknownOption(options, Object.keys(known));
  if (unknown !== undefined) throw refuse(`${name}(): ${unknown}`);
  const schema = options.schema ?? defaultSchema;
  quoteIdentifier(schema);
  checkPartitions(options.partitions);
  checkNotifyTrigger(options.notifyTrigger);
  checkInboxOnly(options);
  return schema;
}

function checkPartitions(choice: unknown): void {
  if (choice === undefined || partitionChoices.includes(choice as PartitionChoice)) return;
  throw refuse(`partitions must be one of ${partitionChoices.join(', ')}. Got ${shown(choice)}.`);
}

function checkInboxOnly({ inboxOnly, partitions, notifyTrigger }: MigrationSqlOptions): void {
  if (inboxOnly !== undefined && typeof inboxOnly !== 'boolean') {
    throw refuse(`inboxOnly must be true or false. Got ${shown(inboxOnly)}.`);
  }
  if (inboxOnly && ((partitions ?? 'none') !== 'none' || notifyTrigger !== undefined)) {
    throw refuse('inboxOnly creates no outbox, so leave out partitions and notifyTrigger.');
  }
}

function checkLockTimeout(ms: number = lockTimeoutMsDefault): number {
  if (Number.isSafeInteger(ms) && ms >= 1 && ms < queryTimeoutMs) return ms;
  throw refuse(`lockTimeoutMs must be a whole number from 1 to ${queryTimeoutMs - 1}. Got ${shown(ms)}.`);
}

function refuse(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
