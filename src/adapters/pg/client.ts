import { PostcommitError } from '../../errors.ts';

/** The part of a `pg` client that is used. Structural, so that any version and any wrapper fits. */
export interface PgClient {
  // biome-ignore lint/suspicious/noExplicitAny: pg's own query has more overloads than a structural type can follow.
  query(text: string, values?: any[]): Promise<any>;
  /** pg 8.21 and later: `I` idle, `T` in a transaction, `E` in a failed one, as of the last answer. */
  getTransactionStatus?(): string | null;
  /** pg 8.23 and later. */
  pipeline?: boolean;
}

/** The part of a `pg` pool that is used. */
export interface PgPool<Client extends PgClient> {
  connect(): Promise<Client & Releasable>;
  // TypeScript infers from the last overload, and pg's last one takes a callback.
  // biome-ignore lint/suspicious/noExplicitAny: see PgClient.
  connect(callback: (...args: any[]) => void): void;
  // biome-ignore lint/suspicious/noExplicitAny: see PgClient.
  query(text: string, values?: any[]): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: pg's events have arguments of their own.
  on(event: 'release', listener: (...args: any[]) => void): unknown;
}

export interface Releasable {
  release(error?: Error | boolean): void;
}

/** The part that is used of the connection which `pg` passes to a submitted query. */
export interface PgConnection {
  stream?: { cork?(): void; uncork?(): void };
  parse(message: { text: string }): void;
  bind(message: { values: unknown[] }): void;
  execute(message: object): void;
  sync(): void;
}

/** What `pg` clients have beyond their types. Any of it may be missing in a wrapper or another version. */
interface PgClientInside {
  /** Nothing is in flight: every statement sent has been answered. */
  readyForQuery?: boolean;
  _connected?: boolean;
  _connecting?: boolean;
  _ending?: boolean;
  _ended?: boolean;
  _queryable?: boolean;
  _activeQuery?: unknown;
  _sentQueryQueue?: readonly unknown[];
  _queryQueue?: readonly unknown[];
  /** Missing in the native client. */
  connection?: Partial<PgConnection>;
  /** Only pools have it. */
  totalCount?: unknown;
  /** The name of the database it connects to. */
  database?: unknown;
  on?(event: 'drain' | 'error', listener: () => void): unknown;
  removeListener?(event: 'drain' | 'error', listener: () => void): unknown;
}

export function insideOf(client: PgClient): PgClientInside {
  return client as PgClientInside;
}

/** Whether this is certainly one connection. A wrapper of a pool may lack `totalCount`, but no pool has `_connected`. */
export function isClient(poolOrClient: object): boolean {
  const { totalCount, _connected } = poolOrClient as PgClientInside;
  return typeof _connected === 'boolean' && typeof totalCount !== 'number';
}

/** Whether the client can no longer send anything. */
export function isDead(client: PgClient): boolean {
  const inside = insideOf(client);
  return inside._ending === true || inside._ended === true || inside._queryable === false;
}

/** Whether the client has statements that are not answered yet. */
export function isBusy(client: PgClient): boolean {
  const { _activeQuery, _sentQueryQueue, _queryQueue } = insideOf(client);
  return Boolean(_activeQuery) || (_sentQueryQueue?.length ?? 0) > 0 || (_queryQueue?.length ?? 0) > 0;
}

/**
 * The state of the client's transaction if it is certain, that is, if every statement sent has been answered. `undefined`
 * while something is in flight (it may be COMMIT), and for a version of pg that does not report it.
 */
export function certainStatus(client: PgClient): string | undefined {
  if (insideOf(client).readyForQuery !== true) return undefined;
  return client.getTransactionStatus?.() ?? undefined;
}

/** Refuses anything that is not a usable client. */
export function requireClient(client: PgClient): void {
  if (typeof client?.query !== 'function') {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'This is not a pg client.');
  }
  const inside = insideOf(client);
  // A pool may run each query on another connection.
  if (typeof inside.totalCount === 'number') {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'This is a pool; take a client with pool.connect().');
  }
  // A client that was never connected would queue the statement until it is connected.
  if (isDead(client) || (inside._connected === false && inside._connecting === false)) {
    throw new PostcommitError('POSTCOMMIT_E_CLIENT_CLOSED');
  }
}

/** Refuses a client that is certainly not in a transaction, or in one that has failed. */
export function requireOpen(client: PgClient): void {
  const status = certainStatus(client);
  if (status === 'E') throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED');
  if (status === 'I') {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'This client is not between BEGIN and COMMIT.');
  }
}

/** The name of the database that the clients of a pool connect to, once it is known. */
const databases = new WeakMap<object, unknown>();

/**
 * Refuses a client of another database: the event would be written there. Only the name is compared, because one server has
 * several addresses (a pooler, a name, an IP address). A client that is not of this pool is fine.
 */
export function requireSameDatabase<Client extends PgClient>(pool: PgPool<Client>, client: PgClient): void {
  const { database } = insideOf(client);
  if (database === undefined || database === null) return;
  if (!databases.has(pool)) databases.set(pool, databaseOf(pool));
  const expected = databases.get(pool);
  if (expected === undefined || expected === null || expected === database) return;
  throw new PostcommitError(
    'POSTCOMMIT_E_NOT_A_TRANSACTION',
    `This client is connected to the database "${database}", and the outbox to "${expected}". Pass a client of the same database, or create an outbox for "${database}".`,
  );
}

/** From a client that is made as the pool makes them, and never connected. `undefined` for a pool that is not of `pg`. */
function databaseOf(pool: object): unknown {
  const { Client, options } = pool as { Client?: new (options: unknown) => PgClient; options?: unknown };
  if (typeof Client !== 'function') return undefined;
  try {
    return insideOf(new Client(options)).database;
  } catch {
    return undefined;
  }
}
