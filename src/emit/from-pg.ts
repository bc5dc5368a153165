import { AsyncLocalStorage } from 'node:async_hooks';
import { codedDatabaseError, isConnectionFailure, sqlState } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import type { OpenTransaction, OutboxDatabase, TransactionOptions } from './outbox-database.ts';

/** The part of a `pg` client that is used. Structural, so that any version and any wrapper of it fits. */
export interface PgClient {
  // biome-ignore lint/suspicious/noExplicitAny: pg's own query has more overloads than a structural type can follow.
  query(text: string, values?: any[]): Promise<any>;
  /** pg 8.17 and later: `I` idle, `T` in a transaction, `E` in a failed one. */
  getTransactionStatus?(): string | null;
  pipeline?: boolean;
}

/** The part of a `pg` pool that is used. */
export interface PgPool<Client extends PgClient> {
  connect(): Promise<Client & { release(error?: Error | boolean): void }>;
  // biome-ignore lint/suspicious/noExplicitAny: see PgClient.
  query(text: string, values?: any[]): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: pg's events have arguments of their own.
  on(event: 'release', listener: (...args: any[]) => void): unknown;
}

// Timers keep the AsyncLocalStorage of whoever made them; those here belong to no request.
const outsideOfRequests = AsyncLocalStorage.snapshot();

/**
 * Emits through a `pg` pool and its clients.
 *
 * @example
 * const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
 * const outbox = createOutbox({ db: fromPg(pool) });
 */
export function fromPg<Client extends PgClient>(pool: PgPool<Client>): OutboxDatabase<Client> {
  if (typeof pool?.connect !== 'function' || typeof pool.query !== 'function') {
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', 'fromPg() takes a pg.Pool.');
  }
  const awaited = new WeakMap<object, () => void>();
  pool.on('release', (_error, client: object) => {
    const callback = awaited.get(client);
    awaited.delete(client);
    callback?.();
  });
  return {
    side: pool as Executor,
    inTransaction,
    afterEnd(client, callback) {
      if (isFromPool(client)) awaited.set(client, callback);
      else watchStatus(client, callback);
    },
    begin: (options) => begin(pool, options),
  };
}

function isFromPool(client: object): boolean {
  return typeof (client as { release?: unknown }).release === 'function';
}

async function inTransaction(client: PgClient): Promise<Executor> {
  if (typeof client?.query !== 'function') {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'This is not a pg client.');
  }
  // A pool has connect() and no status: each of its queries may run on another connection.
  if (typeof (client as { totalCount?: unknown }).totalCount === 'number') {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'This is a pool; take a client with pool.connect().');
  }
  if ((client as { _ending?: boolean })._ending || (client as { _queryable?: boolean })._queryable === false) {
    throw new PostcommitError('POSTCOMMIT_E_CLIENT_CLOSED');
  }
  const status = client.getTransactionStatus?.();
  if (status === 'E') throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED');
  if (status === 'T') return client as Executor;
  // Idle by the last answer; with pipelining, or in an older pg, a BEGIN may be under way: only the server knows.
  if (status === 'I' && !client.pipeline) throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION');
  try {
    await client.query('savepoint postcommit_probe; release savepoint postcommit_probe');
  } catch (error) {
    throw codedDatabaseError(error);
  }
  return client as Executor;
}

/** A client that belongs to no pool does not tell when its transaction ends, so it is asked, for a while. */
function watchStatus(client: PgClient, callback: () => void): void {
  const look = (pauseMs: number) => {
    if (pauseMs > 2_000) return;
    setTimeout(() => {
      if (client.getTransactionStatus?.() === 'I') callback();
      else look(pauseMs * 2);
    }, pauseMs).unref();
  };
  outsideOfRequests(() => look(2));
}

async function begin<Client extends PgClient>(
  pool: PgPool<Client>,
  options: TransactionOptions,
): Promise<OpenTransaction<Client>> {
  let client: Client & { release(error?: Error | boolean): void };
  try {
    client = await pool.connect();
  } catch (error) {
    throw codedDatabaseError(error);
  }
  const pipelined = options.pipeline !== false && client.pipeline !== undefined;
  const before = client.pipeline;
  // The client is ours until it is released, and idle now, so its mode may be changed for that time.
  if (pipelined) client.pipeline = true;
  const release = (error?: unknown) => {
    if (pipelined && before !== undefined) client.pipeline = before;
    client.release(isConnectionFailure(error) ? (error as Error) : undefined);
  };
  const text = options.isolation ? `begin isolation level ${isolationLevel(options.isolation)}` : 'begin';
  const begun = client.query(text);
  begun.catch(() => {}); // Reported by commit(), or by the first statement.
  if (!pipelined) {
    try {
      await begun;
    } catch (error) {
      release(error);
      throw codedDatabaseError(error);
    }
  }
  return {
    tx: client,
    executor: client as Executor,
    commit: (last) => commit(client, begun, last, release),
    async rollback() {
      try {
        await client.query('rollback');
        release();
      } catch (error) {
        release(error);
      }
    },
  };
}

async function commit(
  client: PgClient,
  begun: Promise<unknown>,
  last: (() => Promise<unknown>) | undefined,
  release: (error?: unknown) => void,
): Promise<void> {
  // Sent together. If the last statement fails, COMMIT answers ROLLBACK, and nothing was committed.
  const lastDone = last?.();
  lastDone?.catch(() => {});
  const pipelined = client.pipeline === true;
  try {
    if (!pipelined) await lastDone;
  } catch (error) {
    await client.query('rollback').then(() => release(), release);
    throw codedDatabaseError(error);
  }
  const committed = client.query('commit');
  const [first, emitted, answer] = await Promise.allSettled([begun, lastDone, committed]);
  const failed = [first, emitted, answer].find((result) => result.status === 'rejected');
  if (failed === undefined && (answer as PromiseFulfilledResult<{ command: string }>).value.command === 'COMMIT') {
    release();
    return;
  }
  release(failed?.reason);
  if (answer.status === 'rejected' && sqlState(answer.reason) === undefined && isConnectionFailure(answer.reason)) {
    throw new PostcommitError('POSTCOMMIT_E_COMMIT_UNKNOWN', undefined, { cause: answer.reason });
  }
  if (failed) throw codedDatabaseError(failed.reason);
  throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED');
}

function isolationLevel(isolation: string): string {
  if (['read committed', 'repeatable read', 'serializable'].includes(isolation)) return isolation;
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `isolation cannot be ${JSON.stringify(isolation)}.`);
}
