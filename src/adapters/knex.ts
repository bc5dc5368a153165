import type { Executor } from '../database/executor.ts';
import { requireRows } from '../database/single-column.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { toQuestionMarks } from './question-marks.ts';
import { notATransaction, wrongClient } from './refusal.ts';

/** The part of a Knex transaction that is used. Structural, so that any version fits. */
export interface KnexTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: the result depends on the driver.
  raw(text: string, values?: any): PromiseLike<any>;
  isCompleted(): boolean;
  // biome-ignore lint/suspicious/noExplicitAny: what the callback of the transaction returned.
  executionPromise: Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: Knex types it as Transaction, without undefined.
  parentTransaction?: any;
  // biome-ignore lint/suspicious/noExplicitAny: not typed by Knex either.
  client?: any;
}

/** The part of what `knex()` returns that is used. */
export interface KnexInstance {
  raw: KnexTransaction['raw'];
  // biome-ignore lint/suspicious/noExplicitAny: its overloads are more than a structural type can follow.
  transaction(...args: any[]): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: not typed by Knex either.
  client?: any;
}

/** What `knex.transaction()` passes to its callback. */
export type KnexTransactionOf<Knex extends KnexInstance> = Knex['transaction'] extends (
  // biome-ignore lint/suspicious/noExplicitAny: only the first parameter matters.
  work: (tx: infer Tx) => any,
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  ...rest: any[]
  // biome-ignore lint/suspicious/noExplicitAny: see above.
) => any
  ? Tx extends KnexTransaction
    ? Tx
    : KnexTransaction
  : KnexTransaction;

/**
 * Emits through Knex with the `pg` driver. `emit` takes what `knex.transaction()` returns or passes to its callback, and nested
 * transactions.
 *
 * @example
 * import knex from 'knex';
 * import { createOutbox } from 'postcommit';
 * import { fromKnex } from 'postcommit/knex';
 *
 * const db = knex({ client: 'pg', connection: process.env.DATABASE_URL ?? '' });
 * const outbox = createOutbox({ db: fromKnex(db) });
 *
 * await db.transaction(async (trx) => {
 *   await trx('orders').insert({ id, total });
 *   await outbox.emit(trx, { type: 'order.created', aggregate: ['order', id], payload: { id, total } });
 * });
 */
export function fromKnex<Knex extends KnexInstance>(knex: Knex): OutboxDatabase<KnexTransactionOf<Knex>> {
  if (typeof knex?.raw !== 'function' || typeof knex.transaction !== 'function') {
    throw wrongClient('fromKnex() takes what knex() returns.');
  }
  if (isTransaction(knex)) throw wrongClient('fromKnex() takes what knex() returns, and this is a transaction of it.');
  return {
    side: executor(knex),
    inTransaction(trx) {
      requireOpen(knex, trx);
      return executor(trx);
    },
    transaction: (work) => knex.transaction(work),
    // Set when COMMIT or ROLLBACK is sent. After that, Knex itself refuses every statement of the transaction.
    isOpen: (trx) => !trx.isCompleted(),
    afterEnd(trx, callback) {
      void outermost(trx).executionPromise.then(callback, callback);
    },
  };
}

function executor(handle: Pick<KnexTransaction, 'raw'>): Executor {
  return {
    async query(text, values = []) {
      const statement = toQuestionMarks(text, values, '\\?');
      try {
        const result = await handle.raw(statement.text, statement.values);
        // A list is what a hook (postProcessResponse) that passes on the rows alone makes of it.
        return { rows: requireRows(Array.isArray(result) ? result : result?.rows) };
      } catch (error) {
        throw hasEnded(error) ? notATransaction('This transaction has ended.') : error;
      }
    },
  };
}

/** Knex refuses a statement that reaches the connection after COMMIT or ROLLBACK was issued, with an error that has no code. */
function hasEnded(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('Transaction query already complete');
}

function isTransaction(handle: unknown): handle is KnexTransaction {
  const { raw, isCompleted, executionPromise } = (handle ?? {}) as Partial<KnexTransaction>;
  return typeof raw === 'function' && typeof isCompleted === 'function' && typeof executionPromise?.then === 'function';
}

function requireOpen(knex: KnexInstance, trx: unknown): void {
  const instead = 'Pass what knex.transaction() passes to its callback.';
  if (!isTransaction(trx)) {
    const { raw } = (trx ?? {}) as Partial<KnexTransaction>;
    throw notATransaction(
      typeof raw === 'function'
        ? `This is the knex instance, which runs each statement on any connection. ${instead}`
        : `This is not a transaction of Knex. ${instead}`,
    );
  }
  if (trx.isCompleted()) throw notATransaction('This transaction has ended.');
  // A transaction has the configuration object of the instance that opened it. A clone of the instance has a copy.
  const [own, given] = [knex.client, trx.client];
  if (own?.config === given?.config) return;
  const [expected, database] = [own?.connectionSettings?.database, given?.connectionSettings?.database];
  if (typeof expected === 'string' && expected === database) return;
  throw notATransaction(
    'This transaction was opened by another knex instance than the one that was passed to fromKnex(). Create an outbox for its own database.',
  );
}

function outermost(trx: KnexTransaction): KnexTransaction {
  let outer = trx;
  while (isTransaction(outer.parentTransaction)) outer = outer.parentTransaction;
  return outer;
}
