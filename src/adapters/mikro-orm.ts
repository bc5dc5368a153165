import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { PostcommitError } from '../errors.ts';
import { knexExecutor, knexSide } from './mikro-orm/knex.ts';
import { kyselyExecutor, kyselySide } from './mikro-orm/kysely.ts';
import type { TransactionContext } from './mikro-orm/transaction-log.ts';
import { isKnex, TransactionLog } from './mikro-orm/transaction-log.ts';
import { notATransaction, wrongClient } from './refusal.ts';

/** The part of a MikroORM `EntityManager` that is used. */
export interface MikroOrmEntityManager {
  // biome-ignore lint/suspicious/noExplicitAny: what it returns depends on the version; see TransactionContext.
  getTransactionContext(): any;
}

/** The part of a `MikroORM` object that is used. */
export interface MikroOrmRoot {
  readonly em: MikroOrmEntityManager;
}

/** What MikroORM has beyond these types. */
interface RootInside<Manager> {
  readonly em: ManagerInside<Manager>;
  /** MikroORM 6 and later. */
  checkConnection?: unknown;
}

interface ManagerInside<Manager> extends MikroOrmEntityManager {
  getDriver(): unknown;
  getConnection(type: 'write'): unknown;
  getEventManager(): { registerSubscriber(subscriber: object): void };
  fork(): { transactional<T>(work: (manager: Manager) => Promise<T>): Promise<T> };
}

/**
 * Emits in transactions of MikroORM 6 and 7.
 *
 * @example
 * import { MikroORM } from '@mikro-orm/postgresql';
 * import { createOutbox } from 'postcommit';
 * import { fromMikroOrm } from 'postcommit/mikro-orm';
 *
 * const orm = await MikroORM.init({ clientUrl: process.env.DATABASE_URL ?? '', entities: ['dist/entities'] });
 * const outbox = createOutbox({ db: fromMikroOrm(orm) });
 *
 * await orm.em.fork().transactional(async (em) => {
 *   em.persist(order);
 *   await outbox.emit(em, { type: 'order.created', aggregate: ['order', order.id], payload: { total: order.total } });
 * });
 */
export function fromMikroOrm<Root extends MikroOrmRoot>(orm: Root): OutboxDatabase<Root['em']> {
  const root = orm as unknown as RootInside<Root['em']>;
  requireRoot(root);
  const log = new TransactionLog();
  root.em.getEventManager().registerSubscriber(log.subscriber);
  return {
    side: {
      query(text, values) {
        const connection = root.em.getConnection('write');
        const side = isMikroOrm6(connection) ? knexSide(connection) : kyselySide(connection);
        return side.query(text, values);
      },
    },
    inTransaction(manager) {
      const context = contextOf(root, log, manager);
      return isKnex(context) ? knexExecutor(context) : kyselyExecutor(context, log);
    },
    transaction: (work) => root.em.fork().transactional(work),
    isOpen(manager) {
      contextOf(root, log, manager);
      return true;
    },
    afterEnd: (manager, callback) => log.afterCommit(contextOf(root, log, manager), callback),
  };
}

function requireRoot<Manager>(root: RootInside<Manager> | undefined): void {
  if (typeof root?.em?.getTransactionContext !== 'function' || typeof root.em.getEventManager !== 'function') {
    throw wrongClient('fromMikroOrm() takes what MikroORM.init() returns.');
  }
  if (typeof root.checkConnection !== 'function') {
    throw new PostcommitError(
      'POSTCOMMIT_E_PACKAGE_TOO_OLD',
      'MikroORM 6.0.0 or later is needed. Run: npm install @mikro-orm/core@latest @mikro-orm/postgresql@latest',
    );
  }
}

function isMikroOrm6(connection: unknown): connection is { getKnex(): never } {
  return typeof (connection as { getKnex?: unknown }).getKnex === 'function';
}

/** The transaction of an entity manager. Refuses one that is not in a transaction, or in one that has ended. */
function contextOf<Manager>(
  root: RootInside<Manager>,
  log: TransactionLog,
  manager: MikroOrmEntityManager,
): TransactionContext {
  const instead = 'Pass the one that em.transactional(async (em) => …) passes to its callback.';
  const inside = manager as Partial<ManagerInside<Manager>> | null | undefined;
  if (typeof inside?.getTransactionContext !== 'function' || typeof inside.getDriver !== 'function') {
    throw notATransaction(`This is not an EntityManager. ${instead}`);
  }
  if (inside.getDriver() !== root.em.getDriver()) {
    throw notATransaction(
      'This EntityManager belongs to another MikroORM object than the outbox. Create an outbox for that one, with fromMikroOrm().',
    );
  }
  const context: TransactionContext | null | undefined = inside.getTransactionContext();
  if (context === undefined || context === null) {
    throw notATransaction(`This EntityManager is not in a transaction. ${instead}`);
  }
  if (log.hasEnded(context)) throw notATransaction(`The transaction of this EntityManager has ended. ${instead}`);
  // Kysely reports neither the end of a nested transaction nor that COMMIT has been sent: its statements would run in another one.
  if (!isKnex(context) && !log.has(context)) {
    throw notATransaction(
      `The outbox has not seen this transaction begin, so it cannot tell when it ends: the EntityManager has an event manager of its own (fork() with freshEventManager), the transaction was opened with Kysely, or before fromMikroOrm() was called. ${instead}`,
    );
  }
  return context;
}
