import { randomUUID } from 'node:crypto';
import { codedDatabaseError, isConnectionFailure } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import { beginMarked } from '../outbox/insert.ts';
import type { OpenTransaction, TransactionOptions } from './outbox-database.ts';
import type { PgClient, PgPool, Releasable } from './pg-client.ts';
import { certainStatus, isBusy, isDead } from './pg-client.ts';

type Release = (error?: unknown) => void;

/** Opens a transaction on a client of the pool. With pipelining, BEGIN travels with the first statement. */
export async function begin<Client extends PgClient>(
  pool: PgPool<Client>,
  options: TransactionOptions,
): Promise<OpenTransaction<Client>> {
  const mark = randomUUID();
  const text = beginMarked(beginText(options.isolation), mark);
  const client = await connect(pool);
  const before = client.pipeline;
  const pipelined = options.pipeline !== false && before !== undefined;
  // The client is ours until it is released, and idle now, so its mode may be changed for that time.
  if (before !== undefined) client.pipeline = pipelined;
  const release: Release = (error) => {
    if (before !== undefined) client.pipeline = before;
    // A statement that `work` left behind: whoever gets the client next must not meet it, nor its answer.
    client.release(isBusy(client) || (isConnectionFailure(error) ? (error as Error) : undefined));
  };
  const begun = client.query(text);
  begun.catch(() => {}); // Reported by commit(), or by the first statement.
  if (!pipelined) {
    try {
      await begun;
    } catch (error) {
      await rollback(client, release);
      throw codedDatabaseError(error);
    }
  }
  return {
    tx: client,
    executor: client as Executor,
    mark,
    commit: (last) => commit(client, begun, last, release),
    rollback: () => rollback(client, release),
  };
}

function beginText(isolation: TransactionOptions['isolation']): string {
  if (isolation === undefined) return 'begin';
  if (['read committed', 'repeatable read', 'serializable'].includes(isolation)) {
    return `begin isolation level ${isolation}`;
  }
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `isolation cannot be ${JSON.stringify(isolation)}.`);
}

async function connect<Client extends PgClient>(pool: PgPool<Client>): Promise<Client & Releasable> {
  try {
    return await pool.connect();
  } catch (error) {
    if (error instanceof Error && /after calling end on the pool/.test(error.message)) {
      throw new PostcommitError('POSTCOMMIT_E_CLIENT_CLOSED', `(${error.message})`, { cause: error });
    }
    throw codedDatabaseError(error);
  }
}

async function rollback(client: PgClient, release: Release): Promise<void> {
  try {
    await client.query('rollback');
    release();
  } catch (error) {
    release(error);
  }
}

async function commit(
  client: PgClient,
  begun: Promise<unknown>,
  last: (() => Promise<unknown>) | undefined,
  release: Release,
): Promise<void> {
  try {
    // Answered long ago if any statement was awaited. Without it, whatever else was sent has committed by itself.
    await begun;
  } catch (error) {
    await rollback(client, release);
    throw codedDatabaseError(error);
  }
  refuseEnded(client, release);
  // Sent together. If the last statement fails, COMMIT answers ROLLBACK, and nothing was committed.
  const lastDone = last?.();
  lastDone?.catch(() => {});
  if (client.pipeline !== true) {
    try {
      await lastDone;
    } catch (error) {
      await rollback(client, release);
      throw codedDatabaseError(error);
    }
  }
  const committed = client.query('commit');
  const [emitted, answer] = await Promise.allSettled([lastDone, committed]);
  const failed = [emitted, answer].find((result) => result.status === 'rejected');
  release(failed?.reason);
  if (failed === undefined) {
    if ((answer as PromiseFulfilledResult<{ command: string }>).value.command === 'COMMIT') return;
    throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED');
  }
  // What the server itself refused is certain. Whatever else happened to COMMIT, it may have been carried out.
  if (answer.status === 'rejected' && !isRefusal(answer.reason) && !isRefusal(failed.reason)) {
    throw new PostcommitError('POSTCOMMIT_E_COMMIT_UNKNOWN', undefined, { cause: answer.reason });
  }
  // A COMMIT that was refused (a deferred constraint, a conflict of serializable transactions) is the caller's to read.
  throw failed === emitted ? codedDatabaseError(failed.reason) : failed.reason;
}

/** Before COMMIT is sent: outside of a transaction it succeeds, and says nothing of what was rolled back before. */
function refuseEnded(client: PgClient, release: Release): void {
  if (isDead(client)) {
    release(new Error('Connection terminated'));
    throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED', 'The connection was lost before COMMIT was sent.');
  }
  if (certainStatus(client) === 'I') {
    release();
    throw new PostcommitError(
      'POSTCOMMIT_E_NOT_A_TRANSACTION',
      'The transaction was ended inside outbox.transaction(), and nothing was emitted: leave COMMIT to it, and throw to roll back.',
    );
  }
}

/** Whether PostgreSQL answered with an error of the statement, rather than the connection failing under it. */
function isRefusal(error: unknown): boolean {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && !isConnectionFailure(error);
}
