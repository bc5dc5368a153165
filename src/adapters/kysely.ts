import type { Executor } from '../database/executor.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { PostcommitError } from '../errors.ts';
import { notATransaction, wrongClient } from './refusal.ts';

/** The part of a Kysely transaction that is used. Structural, so that any version fits. */
export interface KyselyTransaction extends KyselyRunner {
  /** `boolean` in a Kysely that is no transaction. */
  readonly isTransaction: true;
}

/** The part of a Kysely instance that is used. */
export interface KyselyInstance extends KyselyRunner {
  transaction(): {
    // biome-ignore lint/suspicious/noExplicitAny: the transaction's type depends on the tables of the instance.
    execute<T>(work: (trx: any) => Promise<T>): Promise<T>;
  };
}

interface KyselyRunner {
  // biome-ignore lint/suspicious/noExplicitAny: a compiled query has a type of Kysely's own.
  executeQuery(query: any): Promise<{ rows: any[] }>;
  withoutPlugins(): KyselyRunner;
  // biome-ignore lint/suspicious/noExplicitAny: internal; `sql` of Kysely calls it too.
  getExecutor(): any;
}

/** What `db.transaction().execute()` passes to its callback. */
export type KyselyTransactionOf<Db extends KyselyInstance> = ReturnType<Db['transaction']>['execute'] extends (
  // biome-ignore lint/suspicious/noExplicitAny: only the first parameter matters.
  work: (tx: infer Tx) => any,
  // biome-ignore lint/suspicious/noExplicitAny: see above.
) => any
  ? Tx extends KyselyTransaction
    ? Tx
    : KyselyTransaction
  : KyselyTransaction;

/**
 * Emits through Kysely with its PostgreSQL dialect. `emit` takes what `db.transaction().execute()` passes to its callback, and
 * what `db.startTransaction().execute()` returns.
 *
 * @example
 * import { Kysely, PostgresDialect } from 'kysely';
 * import { createOutbox } from 'postcommit';
 * import { fromKysely } from 'postcommit/kysely';
 *
 * const db = new Kysely<{ orders: { id: string; total: number } }>({ dialect: new PostgresDialect({ pool }) });
 * const outbox = createOutbox({ db: fromKysely(db) });
 *
 * await db.transaction().execute(async (trx) => {
 *   await trx.insertInto('orders').values({ id, total }).execute();
 *   await outbox.emit(trx, { type: 'order.created', aggregate: ['order', id], payload: { id, total } });
 * });
 */
export function fromKysely<Db extends KyselyInstance>(db: Db): OutboxDatabase<KyselyTransactionOf<Db>> {
  if (typeof db?.executeQuery !== 'function' || typeof db.transaction !== 'function') {
    throw wrongClient('fromKysely() takes a Kysely instance.');
  }
  if (isTransaction(db)) throw wrongClient('fromKysely() takes a Kysely instance, and this is a transaction of it.');
  return {
    side: executor(db),
    inTransaction(trx) {
      requireTransaction(db, trx);
      return executor(trx);
    },
    transaction: (work) => db.transaction().execute(work),
    // No isOpen: Kysely notes that a transaction has ended when COMMIT is answered. A statement that comes while COMMIT is on its
    // way would run after it, so the server has to check.
  };
}

let queries = 0;

function executor(handle: KyselyRunner): Executor {
  return {
    async query(text, values = []) {
      // What CompiledQuery.raw() makes. Plugins would change names and parse texts that look like JSON.
      const query = { kind: 'RawNode', sqlFragments: [text], parameters: [] };
      const queryId = { queryId: `postcommit-${++queries}` };
      try {
        const { rows } = await handle.withoutPlugins().executeQuery({ sql: text, parameters: values, query, queryId });
        return { rows };
      } catch (error) {
        throw hasEnded(error) ? notATransaction('This transaction has ended.') : error;
      }
    },
  };
}

/** Kysely refuses statements of a finished transaction with an error that has no code. */
function hasEnded(error: unknown): boolean {
  return error instanceof Error && /^Transaction is already (committed|rolled back)$/.test(error.message);
}

function isTransaction(handle: unknown): handle is KyselyTransaction {
  return (handle as Partial<KyselyTransaction> | null)?.isTransaction === true;
}

function requireTransaction(db: KyselyInstance, trx: unknown): void {
  const instead = 'Pass what db.transaction().execute() passes to its callback.';
  if (!isTransaction(trx) || typeof trx.executeQuery !== 'function' || typeof trx.getExecutor !== 'function') {
    const { executeQuery } = (trx ?? {}) as Partial<KyselyRunner>;
    throw notATransaction(
      typeof executeQuery === 'function'
        ? `This is a Kysely instance, not a transaction. ${instead}`
        : `This is not a transaction of Kysely. ${instead}`,
    );
  }
  const [own, given] = [db.getExecutor(), trx.getExecutor()];
  // In later versions the executor of a transaction refuses statements once it has ended. An older one runs them, on a
  // connection that may be in another transaction.
  if (given instanceof own.constructor) {
    throw new PostcommitError('POSTCOMMIT_E_PACKAGE_TOO_OLD', 'fromKysely() needs kysely 0.28.11 or later.');
  }
  // An instance and all that comes from it share the adapter of their dialect.
  if (given.adapter !== own.adapter) {
    throw notATransaction(
      'This transaction was opened by another Kysely instance than the one that was passed to fromKysely(). Create an outbox for its own database.',
    );
  }
}
