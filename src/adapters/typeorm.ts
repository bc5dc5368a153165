import type { Executor } from '../database/executor.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { PostcommitError } from '../errors.ts';
import { executorInTransaction, isInTransaction } from './pg/borrowed-client.ts';
import type { PgClient } from './pg/client.ts';
import { TransactionEnds } from './pg/transaction-ends.ts';
import { notATransaction, wrongClient } from './refusal.ts';

/** The part of a TypeORM `EntityManager` that is used. */
export interface TypeOrmEntityManager {
  /** Missing in `dataSource.manager`, whose statements may each run on another connection. */
  // biome-ignore lint/suspicious/noExplicitAny: see RunnerInside.
  readonly queryRunner?: any;
}

/** The part of a TypeORM `DataSource` that is used. */
export interface TypeOrmDataSource<Manager extends TypeOrmEntityManager> {
  readonly manager: Manager;
  transaction<T>(work: (manager: Manager) => Promise<T>): Promise<T>;
  // biome-ignore lint/suspicious/noExplicitAny: its result depends on the statement.
  query(text: string, values?: any[]): Promise<any>;
}

/** What TypeORM has beyond these types. */
interface DataSourceInside {
  '@instanceof'?: unknown;
  options?: { type?: string };
  /** `master` is a `pg` pool, once the data source is initialized. */
  driver?: { master?: PgClient };
}

interface ManagerInside extends TypeOrmEntityManager {
  readonly queryRunner?: RunnerInside;
  /** TypeORM 1. */
  readonly dataSource?: unknown;
  /** TypeORM 0.3. */
  readonly connection?: unknown;
}

interface RunnerInside {
  readonly isTransactionActive?: boolean;
  readonly isReleased?: boolean;
  /** A `pg` client. */
  readonly databaseConnection?: PgClient;
}

/**
 * Emits in transactions of TypeORM 0.3 and 1.
 *
 * @example
 * import { DataSource } from 'typeorm';
 * import { createOutbox } from 'postcommit';
 * import { fromTypeOrm } from 'postcommit/typeorm';
 *
 * const dataSource = new DataSource({ type: 'postgres', url: process.env.DATABASE_URL ?? '', entities: ['dist/entities/*.js'] });
 * await dataSource.initialize();
 * const outbox = createOutbox({ db: fromTypeOrm(dataSource) });
 *
 * await dataSource.transaction(async (manager) => {
 *   await manager.insert('Order', { id, total });
 *   await outbox.emit(manager, { type: 'order.created', aggregate: ['order', id], payload: { id, total } });
 * });
 */
export function fromTypeOrm<Manager extends TypeOrmEntityManager>(
  dataSource: TypeOrmDataSource<Manager>,
): OutboxDatabase<Manager> {
  requireDataSource(dataSource);
  const ends = new TransactionEnds();
  return {
    side: { query: (text, values) => sideOf(dataSource).query(text, values) },
    inTransaction: (manager) => executorInTransaction(clientOf(dataSource, manager)),
    transaction: (work) => dataSource.transaction(work),
    isOpen: (manager) => isInTransaction(clientOf(dataSource, manager)),
    afterEnd: (manager, callback) => ends.await(clientOf(dataSource, manager), callback),
  };
}

function requireDataSource(dataSource: object): void {
  const inside = dataSource as (DataSourceInside & { transaction?: unknown; query?: unknown }) | undefined;
  if (typeof inside?.transaction !== 'function' || typeof inside.query !== 'function' || !inside.options) {
    throw wrongClient('fromTypeOrm() takes a DataSource.');
  }
  if (inside['@instanceof'] !== Symbol.for('DataSource')) {
    throw new PostcommitError(
      'POSTCOMMIT_E_PACKAGE_TOO_OLD',
      'typeorm 0.3.0 or later is needed, which has DataSource instead of Connection. Run: npm install typeorm@latest',
    );
  }
  if (inside.options.type !== 'postgres') {
    throw wrongClient(
      `fromTypeOrm() needs a DataSource of the type postgres, and this one is of the type ${inside.options.type}.`,
    );
  }
}

function sideOf(dataSource: object): Executor {
  const pool = (dataSource as DataSourceInside).driver?.master;
  if (typeof pool?.query === 'function') return pool as Executor;
  throw new PostcommitError('POSTCOMMIT_E_CLIENT_CLOSED', 'Call dataSource.initialize() first.');
}

/** The connection of the transaction. Refuses a manager that is not in one, or whose connection was given back to the pool. */
function clientOf(dataSource: object, manager: TypeOrmEntityManager): PgClient {
  const inside = manager as (ManagerInside & { manager?: unknown; isTransactionActive?: unknown }) | undefined;
  if (typeof inside !== 'object' || inside === null) throw refusal('This is not an EntityManager.');
  if (typeof inside.isTransactionActive === 'boolean') {
    throw refusal('This is a QueryRunner. Pass queryRunner.manager, after queryRunner.startTransaction().');
  }
  const owner = inside.dataSource ?? inside.connection;
  if (owner === undefined) throw refusal('This is not an EntityManager.');
  if (owner !== dataSource) {
    throw refusal(
      'This EntityManager belongs to another DataSource than the outbox. Create an outbox for that one, with fromTypeOrm().',
    );
  }
  const { queryRunner } = inside;
  if (queryRunner?.isTransactionActive !== true) throw refusal('This EntityManager is not in an open transaction.');
  // TypeORM releases a connection that is lost. Otherwise the transaction ends first.
  if (queryRunner.isReleased === true) throw new PostcommitError('POSTCOMMIT_E_CLIENT_CLOSED');
  const client = queryRunner.databaseConnection;
  if (client === undefined || client === null) throw refusal('This EntityManager has no connection yet.');
  return client;
}

function refusal(what: string): PostcommitError {
  return notATransaction(
    `${what} Pass the one that dataSource.transaction(async (manager) => …) passes to its callback.`,
  );
}
