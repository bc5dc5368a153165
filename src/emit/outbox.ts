import { OutboxAdmin } from '../admin/admin.ts';
import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor, Statement } from '../database/executor.ts';
import { defaultSchema, quoteIdentifier } from '../database/identifier.ts';
import { PostcommitError } from '../errors.ts';
import type { InsertableEvent } from '../outbox/emitting/insert.ts';
import { insertFlush, insertOnce, insertStatement, recordedFlushes } from '../outbox/emitting/insert.ts';
import { didYouMean } from '../suggest.ts';
import { bufferOf, closeBuffer, EmitBuffer, openBuffer } from './emit-buffer.ts';
import type { OutboxEvent } from './event.ts';
import { toInsertable } from './event.ts';
import { operatorSide } from './operator-side.ts';
import type { OpenTransaction, OutboxDatabase, TransactionOptions } from './outbox-database.ts';
import { RelayNotifier } from './relay-notifier.ts';

export interface OutboxOptions<Tx> {
  /** The database, through the client you use: `fromPg(pool)`. */
  db: OutboxDatabase<Tx>;
  /** The schema that holds the outbox. Default `postcommit`. */
  schema?: string;
  /** Event types and payload schemas. With it, anything else is refused. */
  catalogue?: EventCatalogue;
  /** The largest payload, as bytes of JSON. Default 1,048,576 (1 MiB). */
  payloadBytesMax?: number;
  /**
   * Make concurrent writers of one aggregate wait for each other, so that events are ordered by commit. Turn it off
   * only if every writer locks its aggregate's row first. Default `true`.
   */
  serialise?: boolean;
  /**
   * Wake relays of other processes after a commit (NOTIFY, outside of your transaction). A process that ends at once after its
   * last emit may not come to that: its event is then found by polling, within a second. Default `true`.
   */
  notify?: boolean;
}

const optionNames: readonly string[] = ['db', 'schema', 'catalogue', 'payloadBytesMax', 'serialise', 'notify'];

/** Makes the statement that writes events, for a transaction with a marker or without. */
type Insert = (marker: string | null) => Statement;

/**
 * Emits one event, or several, and returns the id or the ids. The events are written in the order of the calls, together with
 * COMMIT or, if that comes first, with the next `outbox.emit(tx, ...)` of the transaction.
 *
 * So events of SQL that the work runs itself (`select postcommit.emit(...)`, a plain INSERT, a trigger that emits) come before
 * an event that was given to `emit` earlier and is not written yet. Where that order matters, use `outbox.emit(tx, ...)`: it
 * writes at once.
 *
 * The events exist exactly when the transaction commits: a rollback to a savepoint does not take them back, even if they were
 * written after the savepoint. They are then written again, in order, with the next `outbox.emit(tx, ...)` or with COMMIT. To
 * know, the transaction asks the server with one round trip before each further `outbox.emit(tx, ...)` and before COMMIT,
 * once an `outbox.emit(tx, ...)` has written events of `emit`. For an event that a savepoint takes back, use
 * `outbox.emit(tx, ...)`.
 */
export interface Emit {
  (event: OutboxEvent): Promise<string>;
  (events: readonly OutboxEvent[]): Promise<string[]>;
}

/** What became of one event of `emitOnce`. */
export interface EmittedOnce {
  id: string;
  /** False: the log has an event with this id, and was left as it is. */
  written: boolean;
}

/** Each id is locked until the commit, and PostgreSQL's lock table is shared by all sessions. */
const emitOnceMax = 1_000;

/** Writes events in the caller's own transaction. Made by `createOutbox`. */
export class Outbox<Tx> {
  readonly #db: OutboxDatabase<Tx>;
  readonly #schema: string;
  readonly #limits: { catalogue: EventCatalogue | undefined; payloadBytesMax: number };
  readonly #serialise: boolean;
  readonly #notifier: RelayNotifier;
  readonly #admin: OutboxAdmin;

  constructor(options: OutboxOptions<Tx>) {
    if (typeof options?.db?.inTransaction !== 'function') {
      throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', 'createOutbox() needs db, e.g. { db: fromPg(pool) }.');
    }
    const unknown = Object.keys(options).find((name) => !optionNames.includes(name));
    if (unknown !== undefined) {
      const detail = `createOutbox() has no option ${unknown}.${didYouMean(unknown, optionNames)} Known are: ${optionNames.join(', ')}.`;
      throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
    }
    const payloadBytesMax = options.payloadBytesMax ?? 1_048_576;
    // jsonb itself ends at 256 MiB; long before that an event is a file.
    if (!Number.isInteger(payloadBytesMax) || payloadBytesMax < 1 || payloadBytesMax > 67_108_864) {
      throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', 'payloadBytesMax must be from 1 to 67,108,864 bytes.');
    }
    this.#db = options.db;
    this.#schema = options.schema ?? defaultSchema;
    quoteIdentifier(this.#schema);
    this.#limits = { catalogue: options.catalogue, payloadBytesMax };
    this.#serialise = options.serialise ?? true;
    const notify = options.notify ?? true;
    this.#notifier = new RelayNotifier(options.db.side, this.#schema, notify);
    this.#admin = new OutboxAdmin({ db: operatorSide(options.db), schema: this.#schema, notify });
  }

  /** Looks events up, lists and counts them, and retries, discards or replays them. */
  get admin(): OutboxAdmin {
    return this.#admin;
  }

  /**
   * Writes events in the transaction you have open: one statement, one round trip, whatever their number. They exist
   * exactly when it commits; a rollback to a savepoint takes back those written after the savepoint. Returns their ids. In a
   * transaction that `outbox.transaction` has opened, events that its `emit` was given before are written first.
   *
   * Until the commit, others that emit for the same aggregates wait. Separate calls for several aggregates, in another order
   * than another transaction's, can deadlock as row locks can: PostgreSQL fails one of the two with 40P01, to be retried
   * as a whole. One call with an array cannot.
   *
   * More than 256 aggregates in one call, or 1,000 in one transaction, shut all other emitters out until the commit. To get
   * there the call waits for open transactions that have emitted, and keeps others waiting for at most 100 ms meanwhile.
   * Up to 1,000 aggregates it then goes on without shutting others out; above, it tries for 3 to 5 s and fails with
   * `POSTCOMMIT_E_BULK_EMIT_BLOCKED`.
   *
   * @example
   * await client.query('begin');
   * await client.query('insert into orders (id, total) values ($1, $2)', [id, total]);
   * await outbox.emit(client, { type: 'order.created', aggregate: ['order', id], payload: { id, total } });
   * await client.query('commit');
   */
  emit(tx: Tx, event: OutboxEvent): Promise<string>;
  emit(tx: Tx, events: readonly OutboxEvent[]): Promise<string[]>;
  async emit(tx: Tx, given: OutboxEvent | readonly OutboxEvent[]): Promise<string | string[]> {
    const check = this.#check(given);
    await this.#inOrder(tx, check, (events) => this.#write(tx, events));
    return answer(given, await check);
  }

  /**
   * Writes events whose ids may be in the log already: such an event is left as it is, and nothing fails. For work that may
   * be repeated, with ids that are derived from it. Says for each event whether it was written.
   *
   * It is correct with concurrent transactions, on a log of one table and on a partitioned one, for as long as the first event
   * is kept (`keepEventsMs`, 30 days). A concurrent `emitOnce` for the same id waits until this transaction has ended. On a
   * partitioned log, events that `emit` or a plain INSERT is writing under the same id at that time are seen only in the
   * partition that is open, and the transaction must be READ COMMITTED. At most 1,000 events in a call.
   *
   * A call locks its ids first and its aggregates then. A transaction that has emitted for the aggregate before can deadlock
   * with another one that emits the same id once: PostgreSQL fails one of the two with 40P01, to be retried as a whole.
   * A rollback to a savepoint releases the ids that were locked after it: another transaction may then write them.
   *
   * @example
   * const { written } = await outbox.emitOnce(client, {
   *   id: '0192f0c1-8f57-7000-8000-000000000001', // The same whenever this work is repeated.
   *   type: 'order.created',
   *   aggregate: ['order', order.id],
   *   payload: order,
   * });
   */
  emitOnce(tx: Tx, event: OutboxEvent & { id: string }): Promise<EmittedOnce>;
  emitOnce(tx: Tx, events: readonly (OutboxEvent & { id: string })[]): Promise<EmittedOnce[]>;
  async emitOnce(tx: Tx, given: OutboxEvent | readonly OutboxEvent[]): Promise<EmittedOnce | EmittedOnce[]> {
    const check = this.#check(given).then((events) => requireIds(given, events));
    let results: EmittedOnce[] = [];
    await this.#inOrder(tx, check, async (events) => {
      let written = new Set<string>();
      await this.#send(tx, async (executor, marker) => {
        if (events.length === 0) return;
        written = await insertOnce(executor, this.#schema, events, { serialise: this.#serialise, marker });
      });
      if (written.size > 0) this.#db.afterEnd(tx, () => this.#notifier.notifyAfterCommit());
      results = events.map(({ id }) => ({ id, written: written.has(id) }));
    });
    return Array.isArray(given) ? results : (results[0] as EmittedOnce);
  }

  async #write(tx: Tx, events: readonly InsertableEvent[]): Promise<void> {
    const insert = this.#insert(events, false);
    await this.#send(tx, async (executor, marker) => {
      if (!insert) return;
      const { text, values } = insert(marker);
      await executor.query(text, values);
    });
    if (insert) this.#db.afterEnd(tx, () => this.#notifier.notifyAfterCommit());
  }

  /** After what was given to the `emit` of the same transaction before, if outbox.transaction() has opened it. */
  async #inOrder(
    tx: Tx,
    check: Promise<InsertableEvent[]>,
    write: (events: InsertableEvent[]) => Promise<void>,
  ): Promise<void> {
    check.catch(() => {}); // Awaited when its turn comes.
    const writeChecked = async () => write(await check);
    const buffer = bufferOf(tx);
    await (buffer ? buffer.writeNow(writeChecked) : writeChecked());
  }

  async #flush({ tx, marker }: OpenTransaction<Tx>, events: readonly InsertableEvent[], flush: number): Promise<void> {
    const options = { serialise: this.#serialise, marker, flush };
    await this.#send(tx, (executor) => insertFlush(executor, this.#schema, events, options));
    this.#db.afterEnd(tx, () => this.#notifier.notifyAfterCommit());
  }

  async #send<T>(tx: Tx, send: (executor: Executor, marker: string | null) => Promise<T>): Promise<T> {
    try {
      return await this.#db.inTransaction(tx, (executor, marker) => send(executor, marker ?? null));
    } catch (error) {
      throw codedDatabaseError(error);
    }
  }

  /**
   * Opens a transaction, runs `work` in it and commits, or rolls back if `work` throws. Statements are pipelined: BEGIN
   * travels with the first one, and the events you emit travel with COMMIT, so emitting costs no round trip. An event
   * that is refused fails the transaction, whether or not its emit was awaited. See {@link Emit} for the order of events.
   *
   * @example
   * await outbox.transaction(async (tx, emit) => {
   *   await tx.query('insert into orders (id, total) values ($1, $2)', [id, total]);
   *   await emit({ type: 'order.created', aggregate: ['order', id], payload: { id, total } });
   * });
   */
  transaction<T>(work: (tx: Tx, emit: Emit) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /**
   * The same for statements that are all known beforehand: the whole transaction is one round trip, so one with an event
   * takes no longer than one without that sends BEGIN, its statement and COMMIT in turn. The first statement that fails
   * fails all of it, with its own error. Answers the id or the ids of the events; what the statements answer is not kept.
   *
   * @example
   * await outbox.transaction(
   *   [{ text: 'insert into orders (id, total) values ($1, $2)', values: [id, total] }],
   *   { type: 'order.created', aggregate: ['order', id], payload: { id, total } },
   * );
   */
  transaction(statements: readonly Statement[], event: OutboxEvent, options?: TransactionOptions): Promise<string>;
  transaction(
    statements: readonly Statement[],
    events: readonly OutboxEvent[],
    options?: TransactionOptions,
  ): Promise<string[]>;
  transaction(
    given: ((tx: Tx, emit: Emit) => Promise<unknown>) | readonly Statement[],
    second?: TransactionOptions | OutboxEvent | readonly OutboxEvent[],
    options?: TransactionOptions,
  ): Promise<unknown> {
    return typeof given === 'function'
      ? this.#work(given, (second ?? {}) as TransactionOptions)
      : this.#run(given, second as OutboxEvent | readonly OutboxEvent[], options ?? {});
  }

  async #work<T>(work: (tx: Tx, emit: Emit) => Promise<T>, options: TransactionOptions): Promise<T> {
    const open = await this.#db.begin(options);
    const buffer = new EmitBuffer({
      write: (events, flush) => this.#flush(open, events, flush),
      recorded: () => this.#send(open.tx, (executor) => recordedFlushes(executor, open.marker)),
    });
    openBuffer(open.tx, buffer);
    let ended = false;
    const emit = ((given: OutboxEvent | readonly OutboxEvent[]) => {
      if (ended) {
        return Promise.reject(new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'The transaction has ended.'));
      }
      const checked = this.#check(given);
      buffer.add(checked);
      const answered = checked.then((events) => answer(given, events));
      answered.catch(() => {}); // Awaited below, also when the caller does not.
      return answered;
    }) as Emit;
    let result: T;
    let insert: Insert | undefined;
    try {
      result = await work(open.tx, emit);
      ended = true;
      insert = this.#insert(await buffer.rest(), true);
    } catch (error) {
      ended = true;
      await open.rollback();
      throw error;
    } finally {
      closeBuffer(open.tx);
    }
    const afterCommitSql = insert && this.#notifier.notifySqlForCommit();
    await open.commit(insert?.(open.marker), afterCommitSql);
    if (insert) this.#notifier.notifyAfterCommit(afterCommitSql !== undefined);
    return result;
  }

  async #run(
    statements: readonly Statement[],
    given: OutboxEvent | readonly OutboxEvent[],
    options: TransactionOptions,
  ): Promise<string | string[]> {
    if (!Array.isArray(statements) || !statements.every((statement) => typeof statement?.text === 'string')) {
      throw new PostcommitError(
        'POSTCOMMIT_E_BAD_OPTION',
        'outbox.transaction() takes a function, or a list of statements: [{ text, values }].',
      );
    }
    const ending = statements.find(({ text }) => endsTransaction.test(text));
    if (ending) {
      throw new PostcommitError(
        'POSTCOMMIT_E_BAD_OPTION',
        `outbox.transaction() commits by itself, and nothing was sent: take "${ending.text.trim().slice(0, 40)}" out of its statements.`,
      );
    }
    const events = await this.#check(given);
    const insert = this.#insert(events, true);
    const afterCommitSql = insert && this.#notifier.notifySqlForCommit();
    await this.#db.run(statements, insert, options, afterCommitSql);
    if (insert) this.#notifier.notifyAfterCommit(afterCommitSql !== undefined);
    return answer(given, events);
  }

  #insert(events: readonly InsertableEvent[], last: boolean): Insert | undefined {
    return events.length > 0 ? insertStatement(this.#schema, events, { serialise: this.#serialise, last }) : undefined;
  }

  async #check(given: OutboxEvent | readonly OutboxEvent[]): Promise<InsertableEvent[]> {
    const list = Array.isArray(given) ? (given as readonly OutboxEvent[]) : [given as OutboxEvent];
    const events: InsertableEvent[] = [];
    for (const event of list) events.push(await toInsertable(event, this.#limits));
    const ids = new Set(events.map((event) => event.id));
    if (ids.size < events.length) {
      const twice = events.find(({ id }) => !ids.delete(id));
      throw new PostcommitError('POSTCOMMIT_E_DUPLICATE_ID', `The id ${twice?.id} appears twice in this call.`);
    }
    return events;
  }
}

/** What would commit or undo the statements before it on its own. Rolling back to a savepoint does not. */
const endsTransaction =
  /^\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!\s+(?:work\s+|transaction\s+)?to\b))\b/i;

function requireIds(given: OutboxEvent | readonly OutboxEvent[], events: InsertableEvent[]): InsertableEvent[] {
  const list = (Array.isArray(given) ? given : [given]) as readonly OutboxEvent[];
  if (list.some(({ id }) => id === undefined)) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_EVENT',
      'emitOnce() needs an id, which recognises the event when the work runs again. Derive a UUID from the work, or use emit().',
    );
  }
  if (list.length > emitOnceMax) {
    throw new PostcommitError(
      'POSTCOMMIT_E_TOO_MANY_EVENTS',
      `emitOnce() takes at most ${emitOnceMax} events in a call. Got ${list.length}.`,
    );
  }
  return events;
}

function answer(given: unknown, events: readonly InsertableEvent[]): string | string[] {
  const ids = events.map((event) => event.id);
  return Array.isArray(given) ? ids : (ids[0] as string);
}

/**
 * Makes an outbox. Nothing is sent to the database yet.
 *
 * @example
 * const outbox = createOutbox({ db: fromPg(new pg.Pool({ connectionString: process.env.DATABASE_URL })) });
 */
export function createOutbox<Tx>(options: OutboxOptions<Tx>): Outbox<Tx> {
  return new Outbox(options);
}
