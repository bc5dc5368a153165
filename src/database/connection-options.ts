import type { Duplex } from 'node:stream';
import type { ConnectionOptions as TlsOptions } from 'node:tls';
import type pg from 'pg';
import { PostcommitError } from '../errors.ts';
import { didYouMean } from '../suggest.ts';
import type { ServerList } from './connection-string.ts';
import { expandUrl, parseConnectionString, serverOf } from './connection-string.ts';
import { fieldsOfUrl } from './url-fields.ts';

/** How to reach the database. Shared by the relay, `migrate()`, the doctor and the config file. */
export interface ConnectionOptions {
  /**
   * A PostgreSQL URL. With several hosts, `postgres://user@a:5432,b:5432/database?target_session_attrs=read-write`, each
   * connection goes to the first that takes writes, also after a failover.
   */
  connectionString?: string | undefined;
  /**
   * What a URL cannot express: TLS certificates, a function that returns the password, session settings. Beside
   * `connectionString`, it must not repeat what is in the URL. Without it, `host` and `database` are required.
   *
   * @example
   * import { readFileSync } from 'node:fs';
   * import { createRelay } from 'postcommit';
   *
   * const relay = createRelay({
   *   connection: {
   *     host: 'db.example.com',
   *     database: 'shop',
   *     user: 'shop_relay',
   *     password: () => readToken(), // E.g. getAuthToken() of @aws-sdk/rds-signer.
   *     ssl: { ca: readFileSync('rds-ca.pem', 'utf8') },
   *   },
   *   handlers: { 'order.created': { 'send-receipt': async (event) => console.log(event.id) } },
   * });
   */
  connection?: ConnectionConfig | undefined;
}

/** The part of `pg`'s own connection config that is the user's to choose. The names are those of `pg`. */
export interface ConnectionConfig {
  /** A host name, an address, or the folder of a Unix socket. List several hosts in `connectionString`. */
  host?: string;
  /** Default 5432. */
  port?: number;
  database?: string;
  /** Default: the operating system's user. */
  user?: string;
  /**
   * A string, or a function that returns one. The function is called for every new connection, so a token that expires is
   * replaced when the relay reconnects.
   */
  password?: string | (() => string | Promise<string>);
  /** `true` for TLS with the system's certificates, or options of Node's `tls.connect()`: `ca`, `cert`, `key`. */
  ssl?: boolean | TlsOptions;
  /** How TLS starts. `direct` needs PostgreSQL 17 and saves a round trip. Default `postgres`. */
  sslnegotiation?: 'postgres' | 'direct';
  /** Bind SCRAM authentication to the TLS connection. Default `false`. */
  enableChannelBinding?: boolean;
  /** Command-line options for the session, e.g. `-c work_mem=64MB`. PgBouncer refuses them by default. */
  options?: string;
  /**
   * The server aborts a statement that takes longer, in milliseconds. Maintenance and `migrate()` have statements that take
   * seconds. Default: the server's own setting.
   */
  statement_timeout?: number;
  /** The server aborts a statement that waits longer for a lock, in milliseconds. Default: the server's own setting. */
  lock_timeout?: number;
  /** The server ends a session that idles in a transaction for longer, in milliseconds. Default: the server's own setting. */
  idle_in_transaction_session_timeout?: number;
  /** How long a connection is idle before TCP keep-alive sends its first probe, in milliseconds. Default: the system's. */
  keepAliveInitialDelayMillis?: number;
  /** Opens the socket, for connectors such as `@google-cloud/cloud-sql-connector`. */
  stream?: () => Duplex;
}

type Check = (value: unknown) => boolean;

const text: Check = (value) => typeof value === 'string' && value !== '';
const milliseconds: Check = (value) => Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31;
const isFunction: Check = (value) => typeof value === 'function';
const isBoolean: Check = (value) => typeof value === 'boolean';

/** Every field with its check and what it must be. Kept complete by its type. */
const fields: Record<keyof ConnectionConfig, readonly [Check, string]> = {
  host: [(value) => text(value) && !/,/.test(value as string), 'one host; list several in connectionString'],
  port: [
    (value) => Number.isInteger(value) && (value as number) > 0 && (value as number) < 65_536,
    'a whole number from 1 to 65535',
  ],
  database: [text, 'a non-empty string'],
  user: [text, 'a non-empty string'],
  password: [(value) => typeof value === 'string' || isFunction(value), 'a string, or a function that returns one'],
  ssl: [(value) => isBoolean(value) || (typeof value === 'object' && value !== null), 'true, false, or TLS options'],
  sslnegotiation: [(value) => value === 'postgres' || value === 'direct', 'postgres or direct'],
  enableChannelBinding: [isBoolean, 'true or false'],
  options: [text, 'a non-empty string'],
  statement_timeout: [milliseconds, 'a whole number of milliseconds'],
  lock_timeout: [milliseconds, 'a whole number of milliseconds'],
  idle_in_transaction_session_timeout: [milliseconds, 'a whole number of milliseconds'],
  keepAliveInitialDelayMillis: [milliseconds, 'a whole number of milliseconds'],
  stream: [isFunction, 'a function that opens a socket'],
};

/** Fields of `pg` that a user may expect here, and what to do instead. */
const elsewhere: Readonly<Record<string, string>> = {
  connectionString: 'Give connectionString beside connection.',
  application_name: 'Postcommit sets it, so that operators can tell its connections apart.',
  query_timeout: 'Postcommit sets it. For a limit on the server, give statement_timeout.',
  connectionTimeoutMillis: 'Postcommit sets it.',
  keepAlive: 'It is always on.',
};

/**
 * Checks the options against each other and returns the servers to try. No message contains a value, which may be a
 * password.
 */
export function resolveConnection({ connectionString, connection }: ConnectionOptions): ServerList {
  if (connection === undefined) {
    if (connectionString === undefined) throw refuse('Give connectionString, or connection with host and database.');
    return parseConnectionString(connectionString);
  }
  checkFields(connection);
  if (connectionString === undefined) {
    if ((connection.host === undefined && connection.stream === undefined) || connection.database === undefined) {
      // Otherwise pg would connect to whatever database it finds on this host.
      throw refuse('connection needs host and database, or connectionString beside it.');
    }
    return { servers: [serverOf({ ...connection } as pg.ClientConfig)], attributes: 'primary' };
  }
  const list = parseConnectionString(connectionString);
  const repeated = fieldsOfUrl(connectionString).find((field) => connection[field] !== undefined);
  if (repeated !== undefined) {
    throw refuse(`${repeated} is in connectionString too: take ${repeated} out of connection, or out of the URL.`);
  }
  return {
    ...list,
    servers: list.servers.map((server) => serverOf({ ...expandUrl(server), ...connection } as pg.ClientConfig)),
  };
}

/** The same for relays and migrations, which write: `any` becomes `primary`. */
export function resolveConnectionForWriting(options: ConnectionOptions): ServerList {
  const { servers, attributes } = resolveConnection(options);
  return { servers, attributes: attributes === 'any' ? 'primary' : attributes };
}

function checkFields(connection: unknown): void {
  if (typeof connection !== 'object' || connection === null || Array.isArray(connection)) {
    throw refuse('connection must be an object, e.g. { host, database, user, password, ssl }.');
  }
  for (const [name, value] of Object.entries(connection)) {
    if (Object.hasOwn(elsewhere, name)) throw refuse(`connection.${name} cannot be set. ${elsewhere[name]}`);
    if (!Object.hasOwn(fields, name)) {
      const known = Object.keys(fields);
      throw refuse(`There is no connection.${name}.${didYouMean(name, known)} Valid fields: ${known.join(', ')}.`);
    }
    const [check, what] = fields[name as keyof ConnectionConfig];
    if (value !== undefined && !check(value)) throw refuse(`connection.${name} must be ${what}.`);
  }
}

function refuse(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
