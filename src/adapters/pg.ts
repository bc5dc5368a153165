import type { Executor } from '../database/executor.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { PostcommitError } from '../errors.ts';
import type { PgClient, PgPool } from './pg/client.ts';
import { certainStatus, isClient, requireClient, requireOpen, requireSameDatabase } from './pg/client.ts';
import { connectionOf } from './pg/connection.ts';
import { begin, insert, run, transaction, transactionWith } from './pg/transaction.ts';
import { TransactionEnds } from './pg/transaction-ends.ts';

export type { PgClient, PgPool } from './pg/client.ts';

/**
 * Emits through a `pg` pool and its clients.
 *
 * @example
 * const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
 * const outbox = createOutbox({ db: fromPg(pool) });
 */
export function fromPg<Client extends PgClient>(pool: PgPool<Client>): OutboxDatabase<Client> {
  if (typeof pool?.connect !== 'function' || typeof pool.query !== 'function') {
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', 'fromPg() takes a pg.Pool.');
  }
  if (isClient(pool)) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      'fromPg() takes a pg.Pool, not a pg.Client: what it writes beside your transactions needs connections of its own. Pass a pool, e.g. new pg.Pool({ connectionString }).',
    );
  }
  const ends = transactionEndsOf(pool);
  return {
    side: pool as Executor,
    inTransaction: (client) => inTransaction(pool, client),
    transaction: (work) => transaction(pool, work),
    // Anything else is uncertain: a statement in flight may be BEGIN or COMMIT, and only the server knows its outcome.
    isOpen: (client) => certainStatus(client) === 'T',
    afterEnd: (client, callback) => ends.await(client, callback),
    connection: () => connectionOf(pool),
    pipelined: {
      begin: (options) => begin(pool, options),
      run: (statements, last, options, afterCommitSql) => run(pool, statements, last, options, afterCommitSql),
      transactionWith: (first, work) => transactionWith(pool, first, work),
      insert: (client, text) => insert(client, text),
    },
  };
}

/** By pool: Node warns of a leak when a pool has more than ten listeners, and a service may have many outboxes and inboxes. */
const endsByPool = new WeakMap<object, TransactionEnds>();

function transactionEndsOf<Client extends PgClient>(pool: PgPool<Client>): TransactionEnds {
  const known = endsByPool.get(pool);
  if (known !== undefined) return known;
  const ends = new TransactionEnds();
  endsByPool.set(pool, ends);
  // A wrapper may not report its statements; its transaction has ended at the latest when it goes back to the pool.
  pool.on('release', (_error, client: object) => ends.tell(client));
  return ends;
}

function inTransaction<Client extends PgClient>(pool: PgPool<Client>, client: PgClient): Executor {
  requireClient(client);
  requireSameDatabase(pool, client);
  requireOpen(client);
  return client as Executor;
}
