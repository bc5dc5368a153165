import { randomUUID } from 'node:crypto';
import { OutboxAdmin } from '../admin/admin.ts';
import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { codedDatabaseError, isConnectionFailure } from '../database/database-error.ts';
import type { Executor, Statement } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import type { InsertableEvent } from '../outbox/emitting/insert.ts';
import {
  ended,
  insertFlush,
  insertIfOpen,
  insertOnce,
  insertStatement,
  markTransaction,
  recordedFlushes,
  setMarkerSql,
  written,
} from '../outbox/emitting/insert.ts';
import { allQueues } from '../outbox/emitting/notify.ts';
import { unknownOption } from '../suggest.ts';
import { loadTracing } from '../telemetry/trace-context.ts';
import { adminExecutor } from './admin-executor.ts';
import type { CheckedEvents, GivenEvents } from './check-events.ts';
import { checkEvents, idsOf, startCheck, startCheckWithId } from './check-events.ts';
import { bufferOf, closeBuffer, EmitBuffer, openBuffer } from './emit-buffer.ts';
import type { Emit, EmittedOnce } from './emit-function.ts';
import type { EventLimits, EventToEmit, OutboxEvent } from './event.ts';
import { isolationSql } from './isolation.ts';
import { requireStatements } from './known-statements.ts';
import type { BatchedEvent, OutboxDatabase, PipelinedTransactions, TransactionOptions } from './outbox-database.ts';
import type { OutboxOptions } from './outbox-options.ts';
import { resolveOutboxOptions } from './outbox-options.ts';
import { queuesOf, RelayNotifier } from './relay-notifier.ts';
import { requireUsable } from './require-usable.ts';
import { sendInTransaction } from './send-in-transaction.ts';

/** Makes the statement that writes events. `null`: nothing can end the transaction before it. */
type Insert = (marker: string | null) => Statement;

/** Writes events in the caller's own transaction. Made by `createOutbox`. `Event`: those that its catalogue allows. */
export class Outbox<Tx, BatchStatement = never, Event extends OutboxEvent = OutboxEvent> {
  readonly #db: OutboxDatabase<Tx, BatchStatement>;
  readonly #schema: string;
  readonly #limits: EventLimits;
  readonly #serialise: boolean;
  readonly #notifier: RelayNotifier;
  readonly #admin: OutboxAdmin;

  constructor(options: OutboxOptions<Tx, BatchStatement>) {
    const { db, schema, serialise, notify, ...limits } = resolveOutboxOptions(options);
    this.#db = db;
    this.#schema = schema;
    this.#limits = limits;
    this.#serialise = serialise;
    void loadTracing(); // So that the first emit does not wait for it.
    this.#notifier = new RelayNotifier(db.side, schema, notify);
    this.#admin = new OutboxAdmin({ db: adminExecutor(db), schema, notify });
  }

  /** Finds, lists and counts events; retries, discards and replays them. */
  get admin(): OutboxAdmin {
    return this.#admin;
  }

  /** The same for several events. */
  emit(tx: Tx, events: readonly Event[]): Promise<string[]>;
  /**
   * Writes events in your open transaction, with one statement and one round trip, whatever their number. They exist exactly
   * when it commits; a rollback to a savepoint removes those written after the savepoint. Returns their ids. In a transaction
   * that `outbox.transaction` has opened, events that were passed to its `emit` before are written first.
   *
   * Until the commit, other transactions that emit for the same aggregates wait. Separate calls for several aggregates, in
   * another order than in another transaction, can deadlock as row locks can: PostgreSQL fails one of the two with 40P01, and
   * that transaction should be retried as a whole. One call with an array cannot deadlock.
   *
   * More than 256 aggregates in one call, or 1,000 in one transaction, lock out all other emitters until the commit. The call
   * first waits for open transactions that have emitted, and blocks others for at most 100 ms meanwhile. Up to 1,000
   * aggregates it then continues without locking others out; above, it tries for 3 to 5 s and fails with
   * `POSTCOMMIT_E_BULK_EMIT_BLOCKED`.
   *
   * @example
   * await client.query('begin');
   * await client.query('insert into orders (id, total) values ($1, $2)', [id, total]);
   * await outbox.emit(client, { type: 'order.created', aggregate: ['order', id], payload: { id, total } });
   * await client.query('commit');
   */
  emit(tx: Tx, event: Event): Promise<string>;
  async emit(tx: Tx, given: GivenEvents): Promise<string | string[]> {
    const checked = startCheck(given, this.#limits);
    await this.#inOrder(tx, checked, (marker) => this.#write(tx, checked, marker));
    return idsOf(given, await checked);
  }

  /** The same for several events. */
  emitOnce(tx: Tx, events: readonly (Event & { id: string })[]): Promise<EmittedOnce[]>;
  /**
   * Writes events whose ids may be in the log already: such an event stays as it is, and nothing fails. For work that may be
   * repeated, with ids that are derived from the work. Tells for each event whether it was written.
   *
   * It is correct with concurrent transactions, on a log of one table and on a partitioned one, for as long as the first event
   * is kept (`keepEventsMs`, 30 days). A concurrent `emitOnce` for the same id waits until this transaction has ended. On a
   * partitioned log, events that `emit` or a plain INSERT is writing under the same id at that time are seen only in the
   * partition that is open, and the transaction must be READ COMMITTED. At most 1,000 events in a call.
   *
   * A call locks its ids first, then its aggregates. A transaction that has emitted for the aggregate before can deadlock
   * with another one that calls `emitOnce` with the same id: PostgreSQL fails one of the two with 40P01, and that transaction
   * should be retried as a whole. A rollback to a savepoint releases the ids that were locked after it: another transaction
   * may then write them.
   *
   * @example
   * const { written } = await outbox.emitOnce(client, {
   *   id: '0192f0c1-8f57-7000-8000-000000000001', // The same whenever this work is repeated.
   *   type: 'order.created',
   *   aggregate: ['order', order.id],
   *   payload: order,
   * });
   */
  emitOnce(tx: Tx, event: Event & { id: string }): Promise<EmittedOnce>;
  async emitOnce(tx: Tx, given: GivenEvents): Promise<EmittedOnce | EmittedOnce[]> {
    const checked = startCheckWithId(given, this.#limits);
    let results: EmittedOnce[] = [];
    await this.#inOrder(tx, checked, async (ownMarker) => {
      let fresh: Set<string> | undefined = new Set();
      const insert = async (executor: Executor, events: readonly InsertableEvent[], marker: string | null) => {
        if (events.length === 0) return written;
        fresh = await insertOnce(executor, this.#schema, events, { serialise: this.#serialise, marker });
        return fresh === undefined ? ended : written;
      };
      const writing = {
        open: (executor: Executor, events: readonly InsertableEvent[]) => insert(executor, events, null),
        uncertain: (executor: Executor, events: readonly InsertableEvent[], known: string | null) =>
          known === null ? markTransaction(executor, randomUUID()) : insert(executor, events, known),
      };
      await sendInTransaction(this.#db, tx, checked, writing, ownMarker);
      const events = await checked;
      this.#notifyAfterEnd(
        tx,
        events.filter(({ id }) => fresh?.has(id)),
      );
      results = events.map(({ id }) => ({ id, written: fresh?.has(id) === true }));
    });
    return Array.isArray(given) ? results : (results[0] as EmittedOnce);
  }

  /**
   * An event as one statement of a batch, for clients that run a list of statements as one transaction (`fromPrisma` does).
   * It is written if the batch commits, and must be an element of one: awaited by itself, it is refused. For clients
   * without batches it throws POSTCOMMIT_E_NO_BATCH. docs/adapters/prisma.md has an example.
   */
  statement(event: Event): BatchStatement {
    if (!this.#db.statement) throw new PostcommitError('POSTCOMMIT_E_NO_BATCH');
    const checked = checkEvents(event, this.#limits).then((events): BatchedEvent => {
      const { text, values = [] } = insertStatement(this.#schema, events, this.#serialise)(null);
      const committed = () => this.#notifier.notifyAfterCommit(queuesOf(events));
      return { id: idsOf(event, events) as string, text, values, committed };
    });
    checked.catch(() => {}); // The batch reports it.
    return this.#db.statement(checked);
  }

  async #write(tx: Tx, checked: CheckedEvents, ownMarker: string | undefined): Promise<void> {
    const writing = {
      open: async (executor: Executor, events: readonly InsertableEvent[]) => {
        const insert = this.#insert(events)?.(null);
        return insert && executor.query(insert.text, insert.values);
      },
      uncertain: (executor: Executor, events: readonly InsertableEvent[], known: string | null) =>
        insertIfOpen(executor, this.#schema, events, { serialise: this.#serialise, known }),
    };
    await sendInTransaction(this.#db, tx, checked, writing, ownMarker);
    this.#notifyAfterEnd(tx, await checked);
  }

  /**
   * Writes after the events that were passed to `emit` of the same outbox.transaction() before, if there is one, and then with the
   * marker of that transaction.
   */
  async #inOrder(tx: Tx, checked: CheckedEvents, write: (marker?: string) => Promise<void>): Promise<void> {
    if (checked instanceof Promise) checked.catch(() => {}); // Awaited by `write`.
    const buffer = bufferOf(tx);
    await (buffer ? buffer.writeNow(() => write(buffer.marker)) : write());
  }

  /**
   * Opens a transaction, runs `work` in it and commits, or rolls back if `work` throws. If the database client pipelines
   * (`fromPg` does), BEGIN is sent with the first statement and the events with COMMIT, so emitting costs no round trip. An
   * event that is refused fails the transaction, whether or not its emit was awaited. See {@link Emit} for the order of events.
   *
   * @example
   * await outbox.transaction(async (tx, emit) => {
   *   await tx.query('insert into orders (id, total) values ($1, $2)', [id, total]);
   *   await emit({ type: 'order.created', aggregate: ['order', id], payload: { id, total } });
   * });
   */
  transaction<T>(work: (tx: Tx, emit: Emit<Event>) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /** The same for statements that are all known beforehand, and several events. */
  transaction(
    statements: readonly Statement[],
    events: readonly Event[],
    options?: TransactionOptions,
  ): Promise<string[]>;
  /**
   * The same for statements that are all known beforehand: with `fromPg` the whole transaction is one round trip, so with an
   * event it takes about as long as BEGIN, a statement and COMMIT without one. If a statement fails, the transaction fails with
   * its error. Returns the id or the ids of the events; the results of the statements are discarded.
   *
   * @example
   * await outbox.transaction(
   *   [{ text: 'insert into orders (id, total) values ($1, $2)', values: [id, total] }],
   *   { type: 'order.created', aggregate: ['order', id], payload: { id, total } },
   * );
   */
  transaction(statements: readonly Statement[], event: Event, options?: TransactionOptions): Promise<string>;
  transaction(
    given: ((tx: Tx, emit: Emit<Event>) => Promise<unknown>) | readonly Statement[],
    second?: TransactionOptions | GivenEvents,
    options?: TransactionOptions,
  ): Promise<unknown> {
    const { pipelined } = this.#db;
    const workOptions = ((typeof given === 'function' ? second : options) ?? {}) as TransactionOptions;
    const unknown = unknownOption(workOptions, ['isolation', 'pipeline'], 'outbox.transaction()');
    if (unknown !== undefined) return Promise.reject(new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown));
    if (typeof given !== 'function') return this.#run(given, second as GivenEvents, workOptions);
    if (pipelined) return this.#workPipelined(pipelined, given, workOptions);
    return this.#work((tx, buffer) => given(tx, this.#emitInto(buffer)), workOptions);
  }

  async #workPipelined<T>(
    pipelined: PipelinedTransactions<Tx>,
    work: (tx: Tx, emit: Emit<Event>) => Promise<T>,
    options: TransactionOptions,
  ): Promise<T> {
    const open = await pipelined.begin(options);
    const buffer = this.#openBuffer(open.tx, open.transactionMarker);
    let result: T;
    let insert: Insert | undefined;
    let queues: string[] = [];
    try {
      result = await work(open.tx, this.#emitInto(buffer));
      buffer.close();
      const rest = await buffer.rest();
      insert = this.#insert(rest);
      queues = queuesOf(rest);
    } catch (error) {
      buffer.abandon();
      await open.rollback();
      throw error;
    } finally {
      closeBuffer(open.tx);
    }
    const afterCommitSql = this.#notifier.notifySqlForCommit(queues);
    await open.commit(insert?.(open.transactionMarker), afterCommitSql);
    this.#notifier.notifyAfterCommit(queues, afterCommitSql !== undefined);
    return result;
  }

  /** The same in a transaction of the client's own, one statement at a time. */
  async #work<T>(work: (tx: Tx, buffer: EmitBuffer) => Promise<T>, { isolation }: TransactionOptions): Promise<T> {
    const isolationStatement = isolation && `set transaction ${isolationSql(isolation)}`;
    let queues: string[] = [];
    let isCommitting = false;
    let thrown: { readonly error: unknown } | undefined;
    const result = await this.#db
      .transaction(async (tx) => {
        const marker = randomUUID();
        const executor = this.#db.inTransaction(tx);
        if (isolationStatement) await executor.query(isolationStatement).catch(throwCoded);
        await executor.query(setMarkerSql(marker)).catch(throwCoded);
        const buffer = this.#openBuffer(tx, marker);
        try {
          const result = await work(tx, buffer);
          buffer.close();
          const rest = await buffer.rest();
          const insert = this.#insert(rest)?.(marker);
          if (insert) await executor.query(insert.text, insert.values).catch(throwCoded);
          else await requireUsable(executor).catch(throwUnlessEnded);
          queues = buffer.hasWritten ? [allQueues] : queuesOf(rest);
          isCommitting = true;
          return result;
        } catch (error) {
          thrown = { error };
          buffer.abandon();
          throw error;
        } finally {
          closeBuffer(tx);
        }
      })
      .catch((error: unknown) => {
        // Of BEGIN, or of a connection that was lost before the work ended.
        if (!isCommitting) throw thrown?.error === error ? error : codedDatabaseError(error);
        if (!isConnectionFailure(error)) throw error;
        throw new PostcommitError('POSTCOMMIT_E_COMMIT_UNKNOWN', undefined, { cause: error });
      });
    this.#notifier.notifyAfterCommit(queues);
    return result;
  }

  #openBuffer(tx: Tx, marker: string): EmitBuffer {
    const buffer = new EmitBuffer({
      marker,
      write: async (events, flush) => {
        const options = { serialise: this.#serialise, marker, flush };
        await insertFlush(this.#db.inTransaction(tx), this.#schema, events, options).catch(throwCoded);
        this.#notifyAfterEnd(tx, events);
      },
      recorded: async () => recordedFlushes(this.#db.inTransaction(tx), marker).catch(throwCoded),
    });
    openBuffer(tx, buffer);
    return buffer;
  }

  #emitInto(buffer: EmitBuffer): Emit<Event> {
    return ((given: GivenEvents) => {
      if (buffer.isClosed) {
        return Promise.reject(new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'The transaction has ended.'));
      }
      const checked = checkEvents(given, this.#limits);
      buffer.add(checked);
      const ids = checked.then((events) => idsOf(given, events));
      ids.catch(() => {}); // The buffer reports it, even when the caller does not await it.
      return ids;
    }) as Emit<Event>;
  }

  async #run(
    statements: readonly Statement[],
    given: GivenEvents,
    options: TransactionOptions,
  ): Promise<string | string[]> {
    requireStatements(statements);
    const events = await checkEvents(given, this.#limits);
    const { pipelined } = this.#db;
    if (pipelined) {
      const insert = this.#insert(events);
      const queues = queuesOf(events);
      const afterCommitSql = this.#notifier.notifySqlForCommit(queues);
      await pipelined.run(statements, insert, options, afterCommitSql);
      this.#notifier.notifyAfterCommit(queues, afterCommitSql !== undefined);
    } else {
      await this.#work(async (tx, buffer) => {
        buffer.add(Promise.resolve(events));
        const executor = this.#db.inTransaction(tx);
        for (const { text, values } of statements) await executor.query(text, values);
      }, options);
    }
    return idsOf(given, events);
  }

  #notifyAfterEnd(tx: Tx, events: readonly InsertableEvent[]): void {
    for (const queue of queuesOf(events)) {
      const { afterCommit } = this.#notifier.of(queue);
      try {
        this.#db.afterEnd?.(tx, afterCommit);
      } catch {
        afterCommit(); // The events are written, and their transaction has ended already.
      }
    }
  }

  #insert(events: readonly InsertableEvent[]): Insert | undefined {
    return events.length > 0 ? insertStatement(this.#schema, events, this.#serialise) : undefined;
  }
}

/** Some clients refuse statements after the work has committed by itself. Without events to write, that is its own affair. */
function throwUnlessEnded(error: PostcommitError): void {
  const ended = error.cause === undefined ? error : codedDatabaseError(error.cause);
  if (!(ended instanceof PostcommitError) || ended.code !== 'POSTCOMMIT_E_NOT_A_TRANSACTION') throw error;
}

function throwCoded(error: unknown): never {
  throw codedDatabaseError(error);
}

/**
 * Makes an outbox. Nothing is sent to the database yet.
 *
 * @example
 * const outbox = createOutbox({ db: fromPg(new pg.Pool({ connectionString: process.env.DATABASE_URL })) });
 */
export function createOutbox<Tx, BatchStatement = never, Catalogue extends EventCatalogue = EventCatalogue>(
  options: OutboxOptions<Tx, BatchStatement, Catalogue>,
): Outbox<Tx, BatchStatement, EventToEmit<Catalogue>> {
  return new Outbox<Tx, BatchStatement, EventToEmit<Catalogue>>(options);
}
