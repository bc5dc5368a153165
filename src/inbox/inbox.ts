import { codedDatabaseError, isConnectionFailure } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { readCommittedSql } from '../database/statement-settings.ts';
import { adminExecutor } from '../emit/admin-executor.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { lostCodes, requireUsable } from '../emit/require-usable.ts';
import { markerFor } from '../emit/transaction-marker.ts';
import { PostcommitError } from '../errors.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { ProcessedEvent } from '../outbox/consuming/record-processed.ts';
import { failTransactionSql, recordLiteralSql, recordProcessed } from '../outbox/consuming/record-processed.ts';
import { pruneAllProcessed } from '../outbox/maintaining/prune-processed.ts';
import type { InboxOptions, InboxPruneOptions, OutsideOptions } from './inbox-options.ts';
import {
  checkConsumer,
  checkKey,
  checkPrune,
  checkTimeout,
  requireWork,
  resolveInboxOptions,
} from './inbox-options.ts';

/** What `once` did: the result of the work, or nothing because the event was processed before. */
export type OnceResult<T> = { duplicate: false; result: T } | { duplicate: true; result?: undefined };

/** What work outside of the database gets. */
export interface OutsideContext {
  /** Aborted after `timeoutMs`. Pass it on, e.g. to `fetch`. */
  signal: AbortSignal;
}

/** The transaction that has a record: its connection may be in another one when the work fails. */
interface Recording {
  /** Of the transaction; `null` if it needed none. */
  marker: string | null;
  /** Whether it is known to have ended. */
  hasEnded: boolean;
}

/** Processes each event once per consumer, however often it is delivered. Made by `createInbox`. */
export class Inbox<Tx> {
  readonly #db: OutboxDatabase<Tx>;
  readonly #schema: string;
  readonly #metrics: Metrics | undefined;
  readonly #consumers = new Set<string>();
  /** Whether a client that should count rows was seen not to. */
  #isCountMissing = false;

  constructor(options: InboxOptions<Tx>) {
    const { db, schema, metrics } = resolveInboxOptions(options);
    this.#db = db;
    this.#schema = schema;
    this.#metrics = metrics;
  }

  /**
   * Records the event in your open transaction and calls `work`, unless this consumer has processed the event before. The record
   * and what `work` writes in the transaction commit together or not at all, so the effect in this database happens once. It
   * costs one round trip more than the work alone.
   *
   * Of two deliveries at the same time, the second waits until the transaction of the first has ended: it skips the event if that
   * one committed, and does the work if it rolled back. Under REPEATABLE READ and SERIALIZABLE the second fails with PostgreSQL's
   * 40001 instead of skipping; retry that transaction as a whole, as always at these levels.
   *
   * If `work` throws, the transaction can no longer commit, even if the caller catches the error: a record without the work, or half
   * of the work without a record, is never committed. To continue in the same transaction after a failure, set a savepoint before
   * `once` and roll back to it. `work` must not end the transaction.
   *
   * @example
   * const inbox = createInbox({ db: fromPg(pool) });
   * await client.query('begin');
   * const { duplicate } = await inbox.once(client, { consumer: 'billing', eventId: id }, async () => {
   *   await client.query('insert into invoices (order_id, total) values ($1, $2)', [order.id, order.total]);
   * });
   * await client.query('commit');
   */
  async once<T>(tx: Tx, event: ProcessedEvent, work: (tx: Tx) => T | Promise<T>): Promise<OnceResult<T>> {
    const key = checkKey(event);
    requireWork(work, 'once');
    const recording: Recording = { marker: null, hasEnded: false };
    if (!(await this.#record(tx, key, recording))) return { duplicate: true };
    try {
      const result = await work(tx);
      this.#db.inTransaction(tx); // Throws if the work has ended the transaction, or left it in a failed state.
      return { duplicate: false, result };
    } catch (error) {
      await this.#preventCommit(tx, recording);
      throw error;
    }
  }

  /**
   * For effects outside of this database: a mail, a payment, a request. Opens a transaction, records the event, calls `work` and
   * commits. Of two deliveries at the same time, the second waits for the first and then skips the event.
   *
   * The promise is weaker than that of `once`: the effect happens **at least once**. It is repeated if this process or its database
   * connection fails after the effect and before the commit, and if `work` takes longer than `timeoutMs` but still has its effect.
   * Pass the event id on as the idempotency key where the other side takes one.
   *
   * Each call holds a database connection and an open transaction while it works, so keep the work short.
   *
   * @example
   * const inbox = createInbox({ db: fromPg(pool) });
   * await inbox.onceOutside({ consumer: 'receipts', eventId: id }, async ({ signal }) => {
   *   await fetch('https://mail.example/send', { method: 'POST', headers: { 'idempotency-key': id }, signal });
   * });
   */
  async onceOutside<T>(
    event: ProcessedEvent,
    work: (context: OutsideContext) => T | Promise<T>,
    options: OutsideOptions = {},
  ): Promise<OnceResult<T>> {
    const key = checkKey(event);
    requireWork(work, 'onceOutside');
    const timeoutMs = checkTimeout(options);
    return this.#inNewTransaction(key, () => withinTime(work, timeoutMs));
  }

  /**
   * `once` in a transaction of its own: opens one, records the event, calls `work` and commits. The record and what `work` writes with
   * `tx` commit together or not at all. For consumers that have no transaction yet; the consumers of brokers use it.
   *
   * Rejects with what `work` threw. If the connection of the transaction was lost meanwhile, it rejects with
   * `POSTCOMMIT_E_DATABASE_UNREACHABLE` and has that as its cause: the event is not at fault. `onceOutside` does the same.
   *
   * @example
   * const inbox = createInbox({ db: fromPg(pool) });
   * await inbox.transaction({ consumer: 'billing', eventId: id }, async (tx) => {
   *   await tx.query('insert into invoices (order_id, total) values ($1, $2)', [order.id, order.total]);
   * });
   */
  async transaction<T>(event: ProcessedEvent, work: (tx: Tx) => T | Promise<T>): Promise<OnceResult<T>> {
    const key = checkKey(event);
    requireWork(work, 'transaction');
    return this.#inNewTransaction(key, work);
  }

  async #inNewTransaction<T>(key: ProcessedEvent, work: (tx: Tx) => T | Promise<T>): Promise<OnceResult<T>> {
    let thrown: { error: unknown } | undefined;
    let isCommitting = false;
    const process = async (tx: Tx, isNew: boolean): Promise<OnceResult<T>> => {
      if (!isNew) return { duplicate: true };
      try {
        return { duplicate: false, result: await work(tx) };
      } catch (error) {
        if (await this.#isLost(tx)) {
          const detail = '(The connection was lost during the work.)';
          throw new PostcommitError('POSTCOMMIT_E_DATABASE_UNREACHABLE', detail, { cause: error });
        }
        thrown = { error };
        throw error;
      }
    };
    const { pipelined } = this.#db;
    try {
      // Under a stricter default isolation, a delivery that has waited for another one would fail with 40001 instead of skipping.
      if (pipelined !== undefined) {
        const first = recordLiteralSql(this.#schema, key, null);
        return await pipelined.transactionWith(first, (tx, inserted) => process(tx, this.#noted(key, inserted === 1)));
      }
      return await this.#db.transaction(async (tx) => {
        await this.#db.inTransaction(tx).query(readCommittedSql);
        const result = await process(tx, await this.#record(tx, key));
        await requireUsable(this.#db.inTransaction(tx));
        isCommitting = true;
        return result;
      });
    } catch (error) {
      if (isCommitting && isConnectionFailure(error)) {
        throw new PostcommitError('POSTCOMMIT_E_COMMIT_UNKNOWN', undefined, { cause: error });
      }
      // The error of the work is the caller's to read: an ECONNREFUSED of it is not about the database.
      throw thrown?.error === error ? error : codedDatabaseError(error);
    }
  }

  /**
   * The inbox for one consumer. Each name can be taken once per inbox: two consumers with one name would skip the events of each
   * other.
   *
   * @example
   * const billing = createInbox({ db: fromPg(pool) }).consumer('billing');
   * const { duplicate } = await billing.once(client, id, () => client.query('insert into invoices (order_id) values ($1)', [order.id]));
   */
  consumer(name: string): InboxConsumer<Tx> {
    const consumer = checkConsumer(name);
    if (this.#consumers.has(consumer)) {
      throw new PostcommitError('POSTCOMMIT_E_DUPLICATE_CONSUMER', `The name is ${JSON.stringify(consumer)}.`);
    }
    this.#consumers.add(consumer);
    return {
      name: consumer,
      once: (tx, eventId, work) => this.once(tx, { consumer, eventId }, work),
      onceOutside: (eventId, work, options) => this.onceOutside({ consumer, eventId }, work, options),
      transaction: (eventId, work) => this.transaction({ consumer, eventId }, work),
    };
  }

  /**
   * Deletes records older than `olderThanMs`, in statements of at most 1,000 rows, and returns how many. A relay that does maintenance
   * on this schema does the same (`maintenance.keepProcessedMs`), so this is for the database of a consumer that has no relay. An
   * event that is delivered again after its record is deleted is processed again.
   *
   * @example
   * const inbox = createInbox({ db: fromPg(pool) });
   * setInterval(() => inbox.prune({ olderThanMs: 60 * 86_400_000 }).catch(console.error), 3_600_000).unref();
   */
  async prune(options: InboxPruneOptions = {}): Promise<number> {
    const { olderThanMs, signal } = checkPrune(options);
    try {
      return await pruneAllProcessed(adminExecutor(this.#db), this.#schema, { keepMs: olderThanMs, signal });
    } catch (error) {
      throw codedDatabaseError(error);
    }
  }

  async #record(
    tx: Tx,
    event: ProcessedEvent,
    recording: Recording = { marker: null, hasEnded: false },
  ): Promise<boolean> {
    try {
      const executor = this.#db.inTransaction(tx);
      const marker = markerFor(this.#db, tx, executor);
      // Where that is `null`, nothing may be awaited before the statement.
      if (marker === null) this.#awaitEnd(tx, recording);
      else recording.marker = await marker;
      const isNew = await this.#recordMarked(tx, executor, event, recording.marker);
      return this.#noted(event, isNew);
    } catch (error) {
      // The transaction may contain the record, and must not commit without the work.
      if (error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_BAD_ADAPTER') {
        await this.#preventCommit(tx, recording);
      }
      throw codedDatabaseError(error);
    }
  }

  #awaitEnd(tx: Tx, recording: Recording): void {
    this.#db.afterEnd?.(tx, () => {
      recording.hasEnded = true;
    });
  }

  async #recordMarked(tx: Tx, executor: Executor, event: ProcessedEvent, marker: string | null): Promise<boolean> {
    const inserting = this.#isCountMissing
      ? undefined
      : this.#db.pipelined?.insert(tx, recordLiteralSql(this.#schema, event, marker));
    if (inserting !== undefined) {
      const inserted = await inserting;
      if (inserted === undefined) throw this.#countMissing();
      // Without a row it is a duplicate; or the transaction with the marker has ended, which recordProcessed() reports.
      if (inserted === 1 || marker === null) return inserted === 1;
    }
    return recordProcessed(executor, this.#schema, event, marker);
  }

  #countMissing(): PostcommitError {
    this.#isCountMissing = true;
    const detail = 'The result of an INSERT has no rowCount. Repeat the transaction: the next one does without it.';
    return new PostcommitError('POSTCOMMIT_E_BAD_ADAPTER', detail);
  }

  #noted({ consumer }: ProcessedEvent, isNew: boolean): boolean {
    const labels = { consumer, outcome: isNew ? 'new' : 'duplicate' };
    if (this.#metrics) this.#metrics.counter('outbox_inbox_events_total', labels).value++;
    return isNew;
  }

  /** Whether the connection is lost. Only it can tell: the error of the work may be about another connection. */
  async #isLost(tx: Tx): Promise<boolean> {
    try {
      await this.#db.inTransaction(tx).query('select 1');
      return false;
    } catch (error) {
      const coded = codedDatabaseError(error);
      return coded instanceof PostcommitError && lostCodes.has(coded.code);
    }
  }

  /** The caller may have given the transaction up meanwhile, and another one on its connection must not fail. */
  async #preventCommit(tx: Tx, { marker, hasEnded }: Recording): Promise<void> {
    if (hasEnded) return;
    try {
      await this.#db.inTransaction(tx).query(failTransactionSql(marker));
    } catch {
      // As intended; or the transaction has failed or ended before.
    }
  }
}

/** The inbox for one consumer. Made by `inbox.consumer(name)`. */
export interface InboxConsumer<Tx> {
  readonly name: string;
  /** See {@link Inbox.once}. */
  once<T>(tx: Tx, eventId: string, work: (tx: Tx) => T | Promise<T>): Promise<OnceResult<T>>;
  /** See {@link Inbox.onceOutside}. */
  onceOutside<T>(
    eventId: string,
    work: (context: OutsideContext) => T | Promise<T>,
    options?: OutsideOptions,
  ): Promise<OnceResult<T>>;
  /** See {@link Inbox.transaction}. */
  transaction<T>(eventId: string, work: (tx: Tx) => T | Promise<T>): Promise<OnceResult<T>>;
}

async function withinTime<T>(work: (context: OutsideContext) => T | Promise<T>, timeoutMs: number): Promise<T> {
  const overdue = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const error = new PostcommitError('POSTCOMMIT_E_WORK_TIMEOUT', `timeoutMs is ${timeoutMs}.`);
      overdue.abort(error);
      reject(error);
    }, timeoutMs);
  });
  try {
    return await Promise.race([work({ signal: overdue.signal }), timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Makes an inbox. Nothing is sent to the database yet. Its table comes with the outbox (`postcommit migrate`), or alone with
 * `postcommit migrate --inbox-only`.
 *
 * @example
 * const inbox = createInbox({ db: fromPg(new pg.Pool({ connectionString: process.env.DATABASE_URL })) });
 */
export function createInbox<Tx>(options: InboxOptions<Tx>): Inbox<Tx> {
  return new Inbox(options);
}
