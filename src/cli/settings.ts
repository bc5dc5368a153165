import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Operator } from '../admin/audit.ts';
import type { PostcommitConfig } from '../config.ts';
import type { ConnectionOptions } from '../database/connection-options.ts';
import { resolveConnection } from '../database/connection-options.ts';
import { defaultSchema, quoteIdentifier } from '../database/identifier.ts';
import type { PartitionChoice } from '../database/migrate-options.ts';
import { PostcommitError } from '../errors.ts';
import { findConfig, loadConfig } from './config.ts';
import type { Terminal } from './terminal.ts';
import { userName } from './user-name.ts';

/** The options that every command takes. */
export interface GlobalOptions {
  config?: string;
  databaseUrl?: string;
  schema?: string;
  json?: boolean;
  operator?: string;
  why?: string;
}

export interface ConfigFile {
  file: string;
  config: PostcommitConfig;
}

/** Where the outbox is: each value from the first of flag, environment, config file. The file is read when needed. */
export class Settings {
  readonly #options: GlobalOptions;
  readonly #terminal: Terminal;
  #configFile: Promise<ConfigFile | undefined> | undefined;

  constructor(options: GlobalOptions, terminal: Terminal) {
    this.#options = options;
    this.#terminal = terminal;
  }

  /**
   * How to reach the database. --database-url says all of it. DATABASE_URL replaces `connectionString` of the config file,
   * whose `connection` still applies: a password function belongs to the deployment that sets the variable.
   */
  async connection(): Promise<ConnectionOptions> {
    const { env } = this.#terminal;
    await this.#checkNamedFile();
    const { databaseUrl } = this.#options;
    if (databaseUrl !== undefined) return checked({ connectionString: databaseUrl }, '--database-url');
    const found = await this.configFile();
    const connection = found?.config.connection;
    if (env.DATABASE_URL) return checked({ connectionString: env.DATABASE_URL, connection }, 'DATABASE_URL');
    const connectionString = found?.config.connectionString || undefined;
    if (found && (connectionString ?? connection)) return checked({ connectionString, connection }, found.file);
    throw new PostcommitError(
      'POSTCOMMIT_E_NO_DATABASE_URL',
      found ? `${found.file} has neither connectionString nor connection.` : undefined,
    );
  }

  async schema(): Promise<string> {
    await this.#checkNamedFile();
    const schema =
      this.#options.schema ??
      (this.#terminal.env.POSTCOMMIT_SCHEMA || undefined) ??
      (await this.configFile())?.config.schema ??
      defaultSchema;
    quoteIdentifier(schema);
    return schema;
  }

  /** Who runs the command and why, for the audit table. */
  operator(): Operator {
    const by = this.#options.operator ?? (this.#terminal.env.POSTCOMMIT_OPERATOR || undefined) ?? userName();
    return { ...(by !== undefined && { by }), ...(this.#options.why !== undefined && { reason: this.#options.why }) };
  }

  /** How `migrate` partitions the log of a new outbox, if the config file has the option. */
  async partitions(): Promise<PartitionChoice | undefined> {
    return (await this.configFile())?.config.partitions;
  }

  /** The config file, if there is one. A file given with --config must exist. */
  configFile(): Promise<ConfigFile | undefined> {
    this.#configFile ??= this.#load();
    return this.#configFile;
  }

  /** A file given with --config must be valid, also when flags override all that it has. */
  async #checkNamedFile(): Promise<void> {
    if (this.#options.config !== undefined) await this.configFile();
  }

  async #load(): Promise<ConfigFile | undefined> {
    const given = this.#options.config;
    const file = given === undefined ? findConfig(this.#terminal.cwd) : resolve(this.#terminal.cwd, given);
    if (file === undefined) return undefined;
    if (!existsSync(file)) throw new PostcommitError('POSTCOMMIT_E_NO_CONFIG', `The file ${file} does not exist.`);
    return { file, config: await loadConfig(file) };
  }
}

/** Adds to the error of invalid connection options where they came from. */
function checked(options: ConnectionOptions, from: string): ConnectionOptions {
  try {
    resolveConnection(options);
    return options;
  } catch (error) {
    if (!(error instanceof PostcommitError)) throw error;
    throw new PostcommitError(error.code, `${from}: ${error.detail}`);
  }
}
