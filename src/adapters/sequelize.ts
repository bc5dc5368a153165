import type { Executor } from '../database/executor.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { executorInTransaction, isInTransaction } from './pg/borrowed-client.ts';
import type { PgClient } from './pg/client.ts';
import { notATransaction, wrongClient } from './refusal.ts';
import { requireVersion } from './require-version.ts';
import { errorWithState, withDriverErrors } from './transaction-errors.ts';

/** The part of a Sequelize transaction that is used. */
export interface SequelizeTransaction {
  commit(): Promise<void>;
  rollback(): Promise<void>;
  // biome-ignore lint/suspicious/noExplicitAny: Sequelize passes the transaction, whose class it declares with `this`.
  afterCommit(hook: (transaction: any) => void): void;
}

/** The part of a `Sequelize` object that is used. */
export interface SequelizeRoot {
  // biome-ignore lint/suspicious/noExplicitAny: overloaded; see TransactionOf.
  transaction(...args: any[]): Promise<any>;
}

/** What `sequelize.transaction()` passes to its callback. */
type TransactionOf<Root extends SequelizeRoot> = Root['transaction'] extends {
  // biome-ignore lint/suspicious/noExplicitAny: the other overloads, in the order of Sequelize's declaration.
  (options: any, work: any): any;
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  (work: (transaction: infer Tx) => any): any;
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  (options?: any): any;
}
  ? Tx & SequelizeTransaction
  : SequelizeTransaction;

/** What Sequelize has beyond its types. */
interface TransactionInside extends SequelizeTransaction {
  id?: unknown;
  sequelize?: unknown;
  parent?: TransactionInside;
  finished?: string;
  /** A `pg` client, with the id of the transaction that it is in. */
  connection?: PgClient & { uuid?: unknown };
}

interface RootInside extends SequelizeRoot {
  getDialect(): string;
  connectionManager: {
    getConnection(): Promise<PgClient>;
    releaseConnection(client: PgClient): void;
  };
}

/**
 * Emits in transactions of Sequelize 6.
 *
 * @example
 * import { DataTypes, Sequelize } from 'sequelize';
 * import { createOutbox } from 'postcommit';
 * import { fromSequelize } from 'postcommit/sequelize';
 *
 * const sequelize = new Sequelize(process.env.DATABASE_URL ?? '');
 * const Order = sequelize.define('Order', { id: { type: DataTypes.UUID, primaryKey: true }, total: DataTypes.INTEGER });
 * const outbox = createOutbox({ db: fromSequelize(sequelize) });
 *
 * await sequelize.transaction(async (transaction) => {
 *   await Order.create({ id, total }, { transaction });
 *   await outbox.emit(transaction, { type: 'order.created', aggregate: ['order', id], payload: { id, total } });
 * });
 */
export function fromSequelize<Root extends SequelizeRoot>(sequelize: Root): OutboxDatabase<TransactionOf<Root>> {
  const root = sequelize as SequelizeRoot as RootInside;
  if (typeof root?.transaction !== 'function' || typeof root.connectionManager?.getConnection !== 'function') {
    throw wrongClient('fromSequelize() takes a Sequelize object.');
  }
  requireVersion('sequelize', (root.constructor as { version?: string }).version, '6.0.0');
  if (root.getDialect() !== 'postgres') {
    throw wrongClient(
      `fromSequelize() needs the dialect postgres, and this Sequelize object has ${root.getDialect()}.`,
    );
  }
  const awaited = new WeakMap<object, Set<() => void>>();
  return {
    side: { query: (text, values) => onConnection(root, (executor) => executor.query(text, values)) },
    inTransaction: (transaction) => executorInTransaction(clientOf(root, transaction)),
    transaction: (work) => withDriverErrors((begun) => root.transaction(begun), work, driverErrorOf),
    isOpen: (transaction) => isInTransaction(clientOf(root, transaction)),
    afterEnd(transaction, callback) {
      // Hooks of a nested transaction run when its savepoint is released.
      const outermost = outermostOf(transaction);
      const callbacks = awaited.get(outermost) ?? new Set();
      if (callbacks.size === 0) {
        awaited.set(outermost, callbacks);
        outermost.afterCommit(() => {
          for (const call of callbacks) call();
        });
      }
      callbacks.add(callback);
    },
  };
}

/** Sequelize keeps the error of `pg` in one of its own, which has no code. */
function driverErrorOf(error: unknown): unknown {
  const { name, message, original } = (error ?? {}) as { name?: string; message?: string; original?: unknown };
  // Its pool had no connection in time. It is also all that Sequelize reports of a server that does not answer.
  if (name === 'SequelizeConnectionAcquireTimeoutError') return errorWithState('08006', `${name}: ${message}`, error);
  return original ?? error;
}

async function onConnection<T>(root: RootInside, work: (executor: Executor) => Promise<T>): Promise<T> {
  const client = await root.connectionManager.getConnection().catch((error) => {
    throw driverErrorOf(error);
  });
  try {
    return await work(client as Executor);
  } finally {
    root.connectionManager.releaseConnection(client);
  }
}

function outermostOf(transaction: TransactionInside): TransactionInside {
  return transaction.parent ? outermostOf(transaction.parent) : transaction;
}

/** The connection of the transaction. Refuses one that has ended, whose connection may be in another transaction by now. */
function clientOf(root: RootInside, transaction: SequelizeTransaction): PgClient {
  const inside: TransactionInside | undefined = transaction;
  if (typeof inside?.commit !== 'function' || typeof inside.rollback !== 'function') {
    throw notATransaction(
      'This is not a transaction of Sequelize. Pass the one that sequelize.transaction(async (transaction) => …) passes to its callback.',
    );
  }
  if (inside.sequelize !== root) {
    throw notATransaction(
      'This transaction belongs to another Sequelize object than the outbox. Create an outbox for that one, with fromSequelize().',
    );
  }
  for (let each: TransactionInside | undefined = inside; each; each = each.parent) {
    if (each.finished) throw notATransaction(`This transaction has ended (${each.finished}).`);
  }
  const { connection } = inside;
  if (connection === undefined || connection.uuid !== inside.id) {
    throw notATransaction('This transaction has not started, or it has ended.');
  }
  return connection;
}
