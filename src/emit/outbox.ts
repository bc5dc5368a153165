import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { codedDatabaseError } from '../database/database-error.ts';
import { defaultSchema, quoteIdentifier } from '../database/identifier.ts';
import { PostcommitError } from '../errors.ts';
import type { InsertableEvent } from '../outbox/insert.ts';
import { insert } from '../outbox/insert.ts';
import { DoorbellRinger } from './doorbell-ringer.ts';
import type { OutboxEvent } from './event.ts';
import { toInsertable } from './event.ts';
import type { OutboxDatabase, TransactionOptions } from './outbox-database.ts';

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
  /** Wake relays of other processes after a commit (NOTIFY on a side connection). Default `true`. */
  notify?: boolean;
}

/** Emits one event, or several, and answers the id or the ids. */
export interface Emit {
  (event: OutboxEvent): Promise<string>;
  (events: readonly OutboxEvent[]): Promise<string[]>;
}

/** Writes events in the caller's own transaction. Made by `createOutbox`. */
export class Outbox<Tx> {
  readonly #db: OutboxDatabase<Tx>;
  readonly #schema: string;
  readonly #limits: { catalogue: EventCatalogue | undefined; payloadBytesMax: number };
  readonly #serialise: boolean;
  readonly #ringer: DoorbellRinger;

  constructor(options: OutboxOptions<Tx>) {
    if (typeof options?.db?.inTransaction !== 'function') {
      throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', 'createOutbox() needs db, e.g. { db: fromPg(pool) }.');
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
    this.#ringer = new DoorbellRinger(options.db.side, this.#schema, options.notify ?? true);
  }

  /**
   * Writes events in the transaction you have open: one statement, one round trip, whatever their number. They exist
   * exactly when it commits. Answers their ids.
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
    const executor = await this.#db.inTransaction(tx);
    const events = await this.#check(given);
    if (events.length > 0) {
      try {
        await insert(executor, this.#schema, events, this.#serialise);
      } catch (error) {
        throw codedDatabaseError(error);
      }
      this.#db.afterEnd(tx, () => this.#ringer.ring());
    }
    return answer(given, events);
  }

  /**
   * Opens a transaction, runs `work` in it and commits, or rolls back if `work` throws. Statements are pipelined: BEGIN
   * travels with the first one, and the events you emit travel with COMMIT, so emitting costs no round trip.
   *
   * @example
   * await outbox.transaction(async (tx, emit) => {
   *   await tx.query('insert into orders (id, total) values ($1, $2)', [id, total]);
   *   await emit({ type: 'order.created', aggregate: ['order', id], payload: { id, total } });
   * });
   */
  async transaction<T>(work: (tx: Tx, emit: Emit) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    const open = await this.#db.begin(options);
    const buffered: InsertableEvent[] = [];
    const checks: Promise<unknown>[] = [];
    let ended = false;
    const emit = ((given: OutboxEvent | readonly OutboxEvent[]) => {
      const checked = (async () => {
        if (ended) throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'The transaction has ended.');
        const events = await this.#check(given);
        buffered.push(...events);
        return answer(given, events);
      })();
      checks.push(checked);
      checked.catch(() => {}); // Awaited below, also when the caller does not.
      return checked;
    }) as Emit;
    let result: T;
    try {
      result = await work(open.tx, emit);
      await Promise.all(checks);
    } catch (error) {
      ended = true;
      await open.rollback();
      throw error;
    }
    ended = true;
    await open.commit(
      buffered.length > 0 ? () => insert(open.executor, this.#schema, buffered, this.#serialise) : undefined,
    );
    if (buffered.length > 0) this.#ringer.ring();
    return result;
  }

  async #check(given: OutboxEvent | readonly OutboxEvent[]): Promise<InsertableEvent[]> {
    const list = Array.isArray(given) ? (given as readonly OutboxEvent[]) : [given as OutboxEvent];
    const events: InsertableEvent[] = [];
    for (const event of list) events.push(await toInsertable(event, this.#limits));
    const ids = new Set(events.map((event) => event.id));
    if (ids.size < events.length) throw new PostcommitError('POSTCOMMIT_E_DUPLICATE_ID', 'It stands twice in this call.');
    return events;
  }
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
