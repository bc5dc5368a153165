import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Operator } from '../admin/audit.ts';
import type { OutboxConfig, PostcommitConfig } from '../config.ts';
import type { ConnectionOptions } from '../database/connection-options.ts';
import { resolveConnection } from '../database/connection-options.ts';
import { defaultSchema, quoteIdentifier } from '../database/identifier.ts';
import type { PartitionChoice } from '../database/migrate-options.ts';
import { PostcommitError } from '../errors.ts';
import { didYouMean } from '../suggest.ts';
import { findConfig, loadConfig } from './config.ts';
import type { Terminal } from './terminal.ts';
import { userName } from './user-name.ts';

/** The options that every command takes. */
export interface GlobalOptions {
  config?: string;
  databaseUrl?: string;
  schema?: string;
  outbox?: string;
  json?: boolean;
  operator?: string;
  why?: string;
}

export interface ConfigFile {
  file: string;
  /** With several outboxes: the options of the selected one, with the defaults of all. */
  config: PostcommitConfig;
  /** The selected one of several outboxes, without the defaults. */
  own?: OutboxConfig;
}

/** An outbox that a command serves. */
export interface ServedOutbox {
  /** Its name in the config file; the schema if the file names none. */
  name: string;
  settings: Settings;
}

/** Where the outbox is: each value from the first of flag, environment, config file. The file is read when needed. */
export class Settings {
  readonly #options: GlobalOptions;
  readonly #terminal: Terminal;
  #wholeFile: Promise<ConfigFile | undefined> | undefined;

  constructor(options: GlobalOptions, terminal: Terminal, wholeFile?: Promise<ConfigFile | undefined>) {
    this.#options = options;
    this.#terminal = terminal;
    this.#wholeFile = wholeFile;
  }

  /**
   * How to reach the database. --database-url says all of it. DATABASE_URL replaces `connectionString` of the config file,
   * whose `connection` still applies: a password function belongs to the deployment that sets the variable. One of several
   * outboxes that has a database of its own keeps it.
   */
  async connection(): Promise<ConnectionOptions> {
    const { env } = this.#terminal;
    await this.#checkNamedFile();
    const { databaseUrl } = this.#options;
    if (databaseUrl !== undefined) return checked({ connectionString: databaseUrl }, '--database-url');
    const found = await this.configFile();
    const connection = found?.config.connection;
    const hasOwn = (found?.own?.connectionString ?? found?.own?.connection) !== undefined;
    if (env.DATABASE_URL && !hasOwn) return checked({ connectionString: env.DATABASE_URL, connection }, 'DATABASE_URL');
    const connectionString = found?.config.connectionString || undefined;
    if (found && (connectionString ?? connection)) return checked({ connectionString, connection }, found.file);
    throw new PostcommitError(
      'POSTCOMMIT_E_NO_DATABASE_URL',
      found
        ? `${found.file} has neither connectionString nor connection, or has it from a variable that is not set.`
        : undefined,
    );
  }

  async schema(): Promise<string> {
    await this.#checkNamedFile();
    const schema =
      this.#options.schema ??
      (await this.#namedOutbox())?.schema ??
      this.#schemaOfEnvironment() ??
      (await this.configFile())?.config.schema ??
      defaultSchema;
    quoteIdentifier(schema);
    return schema;
  }

  /** The schema for a new config file, which does not depend on an existing one. */
  schemaToWrite(): string {
    const schema = this.#options.schema ?? this.#schemaOfEnvironment() ?? defaultSchema;
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

  /**
   * The config file, if there is one. A file given with --config must exist. If it has several outboxes, --outbox selects one;
   * without the flag this fails with POSTCOMMIT_E_USAGE.
   */
  async configFile(): Promise<ConfigFile | undefined> {
    const found = await this.wholeFile();
    const given = this.#options.outbox;
    const { outboxes, ...shared } = found?.config ?? {};
    if (found === undefined || outboxes === undefined) {
      if (given === undefined) return found;
      throw new PostcommitError('POSTCOMMIT_E_USAGE', `--outbox ${given}: there is no config file with outboxes.`);
    }
    const names = Object.keys(outboxes);
    const name = given ?? (names.length === 1 ? names[0] : undefined);
    if (name === undefined) {
      throw new PostcommitError('POSTCOMMIT_E_USAGE', `Choose an outbox with --outbox: ${names.join(', ')}.`);
    }
    const own = Object.hasOwn(outboxes, name) ? outboxes[name] : undefined;
    if (own === undefined) {
      const hint = didYouMean(name, names) || ` Known outboxes: ${names.join(', ')}.`;
      throw new PostcommitError('POSTCOMMIT_E_USAGE', `There is no outbox ${name} in ${found.file}.${hint}`);
    }
    return { file: found.file, config: { ...shared, ...own }, own };
  }

  /** The config file with all of its outboxes. */
  wholeFile(): Promise<ConfigFile | undefined> {
    this.#wholeFile ??= this.#load();
    return this.#wholeFile;
  }

  /** What a command serves that can serve several outboxes: all of the config file, or the one that --outbox selects. */
  async outboxes(): Promise<ServedOutbox[]> {
    const names = Object.keys((await this.wholeFile())?.config.outboxes ?? {});
    const { outbox, databaseUrl, schema } = this.#options;
    if (outbox !== undefined) return [{ name: outbox, settings: this }];
    if (names.length === 0) return [{ name: await this.schema(), settings: this }];
    if (names.length > 1 && (databaseUrl ?? schema) !== undefined) {
      const detail = `With --database-url or --schema, choose an outbox with --outbox: ${names.join(', ')}.`;
      throw new PostcommitError('POSTCOMMIT_E_USAGE', detail);
    }
    return names.map((name) => {
      const settings = new Settings({ ...this.#options, outbox: name }, this.#terminal, this.#wholeFile);
      return { name, settings };
    });
  }

  #schemaOfEnvironment(): string | undefined {
    return this.#terminal.env.POSTCOMMIT_SCHEMA || undefined;
  }

  /** The selected one of several outboxes. With --database-url the file is read only if --outbox refers to it. */
  async #namedOutbox(): Promise<OutboxConfig | undefined> {
    if (this.#options.databaseUrl !== undefined && this.#options.outbox === undefined) return undefined;
    return (await this.configFile())?.own;
  }

  /** A file given with --config must be valid, even when flags override all that it has. */
  async #checkNamedFile(): Promise<void> {
    if (this.#options.config !== undefined) await this.wholeFile();
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
