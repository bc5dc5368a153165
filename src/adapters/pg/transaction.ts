import { randomUUID } from 'node:crypto';
import { codedDatabaseError, isConnectionFailure } from '../../database/database-error.ts';
import type { Statement } from '../../database/executor.ts';
import type { Isolation } from '../../emit/isolation.ts';
import { isolationSql } from '../../emit/isolation.ts';
import type { OpenTransaction, TransactionOptions } from '../../emit/outbox-database.ts';
import { PostcommitError } from '../../errors.ts';
import { setMarkerSql } from '../../outbox/emitting/insert.ts';
import { sendBatch, sendInTurn, takesBatches } from './batch.ts';
import type { PgClient, PgPool, Releasable } from './client.ts';
import { certainStatus, insideOf, isBusy, isDead } from './client.ts';

type Release = (error?: unknown) => void;

/** Opens a transaction on a client of the pool. With pipelining, BEGIN is sent with the first statement. */
export async function begin<Client extends PgClient>(
  pool: PgPool<Client>,
  options: TransactionOptions,
): Promise<OpenTransaction<Client>> {
  const marker = randomUUID();
  const text = `${beginText(options.isolation)}; ${setMarkerSql(marker)}`;
  const client = await connect(pool);
  const before = client.pipeline;
  const pipelined = options.pipeline !== false && before !== undefined;
  // The client is idle and ours until it is released, so its mode may be changed for that time.
  if (before !== undefined) client.pipeline = pipelined;
  const release: Release = (error) => {
    if (before !== undefined) client.pipeline = before;
    giveBack(client, error);
  };
  if (pipelined) corkForThisTick(client);
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
    transactionMarker: marker,
    commit: (last, afterCommitSql) =>
      commit(client, { together: options.pipeline !== false, begun, last, afterCommitSql, release }),
    rollback: () => rollback(client, release),
  };
}

/** Runs `work` in a transaction, one statement at a time. */
export async function transaction<Client extends PgClient, T>(
  pool: PgPool<Client>,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const { tx, commit, rollback } = await begin(pool, { pipeline: false });
  let result: T;
  try {
    result = await work(tx);
  } catch (error) {
    await rollback();
    throw error;
  }
  await commit();
  return result;
}

/**
 * Runs `work` in a READ COMMITTED transaction that starts with `first`, one statement at a time. `work` gets the number of rows that
 * `first` inserted.
 *
 * With a client of pg itself, BEGIN and `first` are one message of the simple protocol, which takes 80 us less than two statements
 * under one Sync: PostgreSQL keeps no plan for them.
 */
export async function transactionWith<Client extends PgClient, T>(
  pool: PgPool<Client>,
  first: string,
  work: (client: Client, inserted: number) => Promise<T>,
): Promise<T> {
  const client = await connect(pool);
  const before = client.pipeline;
  if (before !== undefined) client.pipeline = false;
  const release: Release = (error) => {
    if (before !== undefined) client.pipeline = before;
    giveBack(client, error);
  };
  let inserted: number;
  try {
    inserted = await beginWith(client, first);
  } catch (error) {
    await rollback(client, release);
    throw codedDatabaseError(error);
  }
  let result: T;
  try {
    result = await work(client, inserted);
  } catch (error) {
    await rollback(client, release);
    throw error;
  }
  refuseEnded(client, release);
  await commitAlone(client, release);
  return result;
}

/** Returns how many rows `first` inserted. */
async function beginWith(client: PgClient, first: string): Promise<number> {
  const open = beginText('read committed');
  if (countsRows(client)) {
    const results = (await client.query(`${open}; ${first}`)) as unknown[];
    const inserted = insertedRows(results[1]);
    if (inserted !== undefined) return inserted;
    await client.query('rollback');
  }
  await client.query(open);
  return (await client.query(`${first} returning 1`)).rows.length;
}

/** Runs an INSERT without parameters: see `PipelinedTransactions`. */
export function insert(client: PgClient, text: string): Promise<number | undefined> | undefined {
  return countsRows(client) ? client.query(text).then(insertedRows) : undefined;
}

/** Not a wrapper, which may return only rows, only the last result of several, or the number of rows returned as `rowCount`. */
function countsRows(client: PgClient): boolean {
  return insideOf(client).connection !== undefined;
}

/** From `rowCount`: RETURNING would take 20 us more. */
function insertedRows(result: unknown): number | undefined {
  const { command, rowCount } = (result ?? {}) as { command?: unknown; rowCount?: unknown };
  return command === 'INSERT' && typeof rowCount === 'number' ? rowCount : undefined;
}

/** Writes BEGIN and the first statement, which usually follows immediately, with one system call. */
function corkForThisTick(client: PgClient): void {
  const stream = insideOf(client).connection?.stream;
  if (typeof stream?.cork !== 'function' || typeof stream.uncork !== 'function') return;
  stream.cork();
  process.nextTick(() => stream.uncork?.());
}

/**
 * Runs a whole transaction, in one round trip if this is a client of `pg` itself.
 *
 * Statements under one Sync are one transaction without BEGIN and COMMIT, which would add 5 % to its time. That holds for
 * statements that can neither end a transaction nor open one; for any other, BEGIN and the marker are sent too.
 */
export async function run<Client extends PgClient>(
  pool: PgPool<Client>,
  statements: readonly Statement[],
  last: ((marker: string | null) => Statement) | undefined,
  options: TransactionOptions,
  afterCommitSql?: string,
): Promise<void> {
  const marker = randomUUID();
  const opening = [{ text: beginText(options.isolation) }, { text: setMarkerSql(marker) }];
  const client = await connect(pool);
  const pipeline = client.pipeline;
  const together = options.pipeline !== false && takesBatches(client);
  if (together && pipeline !== undefined) client.pipeline = true;
  const release: Release = (error) => {
    if (pipeline !== undefined) client.pipeline = pipeline;
    giveBack(client, error);
  };
  const attempt = (together: boolean) => {
    const implicit = together && options.isolation === undefined && statements.every(({ text }) => isPlain(text));
    const before = implicit ? statements : [...opening, ...statements];
    const all = last ? [...before, last(implicit ? null : marker)] : before;
    const first = before.length - statements.length;
    // The error of a statement of the caller is the caller's to read.
    const toThrow = (error: unknown, at: number) =>
      at >= first && at < before.length ? error : codedDatabaseError(error);
    return commitAll(client, all, { together, implicit, afterCommitSql, toThrow, release });
  };
  if ((await attempt(together)) === 'refused') await attempt(false);
}

/** Whether a statement cannot end a transaction. Procedures and DO can: outside of BEGIN they may commit. */
function isPlain(text: string): boolean {
  return /^\s*(?:insert|update|delete|merge|select|with|values)\b/i.test(text);
}

/** A pool listens to a client only while the client is idle in it, and an 'error' without a listener ends the process. */
const ignoreError = (): void => {};

function giveBack(client: PgClient & Releasable, error: unknown): void {
  // If `work` left a statement unanswered, the next user of the client must not get it, nor its answer.
  const destroy = isBusy(client) || (isConnectionFailure(error) ? (error as Error) : undefined);
  if (!destroy) insideOf(client).removeListener?.('error', ignoreError);
  client.release(destroy);
}

function beginText(isolation: Isolation | undefined): string {
  return isolation === undefined ? 'begin' : `begin ${isolationSql(isolation)}`;
}

async function connect<Client extends PgClient>(pool: PgPool<Client>): Promise<Client & Releasable> {
  try {
    const client = await pool.connect();
    insideOf(client).on?.('error', ignoreError);
    return client;
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

interface OpenCommit {
  /** Send the events and COMMIT as one message, if the client takes that. */
  together: boolean;
  begun: Promise<unknown>;
  last: Statement | undefined;
  afterCommitSql: string | undefined;
  release: Release;
}

async function commit(client: PgClient, { together, begun, last, afterCommitSql, release }: OpenCommit): Promise<void> {
  try {
    // Answered long ago if any statement was awaited. If BEGIN failed, every other statement has committed by itself.
    await begun;
  } catch (error) {
    await rollback(client, release);
    throw codedDatabaseError(error);
  }
  refuseEnded(client, release);
  if (last === undefined && afterCommitSql === undefined) return commitAlone(client, release);
  const statements = last ? [last] : [];
  const options = { afterCommitSql, toThrow: codedDatabaseError, release };
  const done = await commitAll(client, statements, { ...options, together: together && takesBatches(client) });
  if (done === 'refused') await commitAll(client, statements, { ...options, together: false });
}

/** Sends COMMIT. Little code, because it runs when the process has just slept: by way of commitAll() it took 20 us more. */
async function commitAlone(client: PgClient, release: Release): Promise<void> {
  let command: string;
  try {
    ({ command } = await client.query('commit'));
  } catch (error) {
    release(error);
    throw commitError(error);
  }
  release();
  if (command !== 'COMMIT') throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED');
}

/**
 * A refusal by the server is certain, and the caller's to read (a deferred constraint, a serialization conflict). After any other
 * failure, a COMMIT that was sent may have run.
 */
function commitError(error: unknown): unknown {
  return isRefusal(error) ? error : new PostcommitError('POSTCOMMIT_E_COMMIT_UNKNOWN', undefined, { cause: error });
}

interface CommitOptions {
  /** Everything as one message. */
  together: boolean;
  /** Without BEGIN and COMMIT: what is sent under one Sync is one transaction. */
  implicit?: boolean;
  /** Sent after COMMIT, in a transaction of its own. The client is released when it is answered; the caller does not wait. */
  afterCommitSql?: string | undefined;
  /** The error to throw when the statement at this index fails. */
  toThrow(error: unknown, at: number): unknown;
  release: Release;
}

/**
 * Runs statements and COMMIT. If a statement fails, COMMIT does not run. `refused` means that the client does not support
 * batches after all: nothing was sent, and the client is not released.
 */
async function commitAll(
  client: PgClient,
  statements: readonly Statement[],
  { together, implicit = false, afterCommitSql, toThrow, release }: CommitOptions,
): Promise<'done' | 'refused'> {
  const all = implicit ? statements : [...statements, { text: 'commit' }];
  const answering = (together ? sendBatch : sendInTurn)(client, all).catch((error) => ({
    error,
    failedAt: -1,
    lastSent: false,
  }));
  // Without a pipeline it is sent when everything is answered; in a transaction that failed it fails too.
  const sendAfterCommit = async () =>
    afterCommitSql === undefined ? undefined : client.query(afterCommitSql).catch(() => {});
  const sent = together && client.pipeline === true ? sendAfterCommit() : undefined;
  const answer = await answering;
  if (answer === 'refused') {
    await sent;
    return 'refused';
  }
  if ('command' in answer) {
    void (sent ?? sendAfterCommit()).then(() => release());
    if (implicit || answer.command === 'COMMIT') return 'done';
    throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED');
  }
  await sent;
  const { error, failedAt, lastSent } = answer;
  const commitFailed = lastSent && failedAt === statements.length;
  if (commitFailed || implicit) release(error);
  else await rollback(client, release);
  if (commitFailed || (lastSent && !isRefusal(error))) throw commitError(error);
  throw toThrow(error, failedAt);
}

/** Outside of a transaction COMMIT succeeds, and does not reveal that the work was rolled back before. */
function refuseEnded(client: PgClient, release: Release): void {
  if (isDead(client)) {
    release(new Error('Connection terminated'));
    throw new PostcommitError('POSTCOMMIT_E_DATABASE_UNREACHABLE', '(The connection was lost before COMMIT was sent.)');
  }
  if (certainStatus(client) === 'I') {
    release();
    throw new PostcommitError(
      'POSTCOMMIT_E_NOT_A_TRANSACTION',
      'The transaction was ended by the function that it was opened for: leave COMMIT to outbox.transaction() or inbox.transaction(), and throw to roll back.',
    );
  }
}

/** Whether PostgreSQL answered with an error, rather than the connection failing. */
function isRefusal(error: unknown): boolean {
  const { code, severity } = (error ?? {}) as { code?: unknown; severity?: unknown };
  // A digit distinguishes an SQLSTATE from a code of the system such as EPERM.
  if (typeof code !== 'string' || !/^(?=.*\d)[0-9A-Z]{5}$/.test(code)) return false;
  // Values that do not fit their statement have the code of a protocol violation.
  const misfit = code === '08P01' && severity !== 'FATAL' && severity !== 'PANIC';
  return misfit || !isConnectionFailure(error);
}
