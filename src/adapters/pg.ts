import type { Executor } from '../database/executor.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { PostcommitError } from '../errors.ts';
import type { PgClient, PgPool } from './pg/client.ts';
import { certainStatus, insideOf, requireClient, requireSameDatabase } from './pg/client.ts';
import { begin, run, transaction } from './pg/transaction.ts';

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
  const ends = new TransactionEnds();
  // A wrapper may not report its statements; its transaction has ended at the latest when it goes back to the pool.
  pool.on('release', (_error, client: object) => ends.tell(client));
  return {
    side: pool as Executor,
    inTransaction: (client) => inTransaction(pool, client),
    transaction: (work) => transaction(pool, work),
    // Anything else is uncertain: a statement in flight may be BEGIN or COMMIT, and only the server knows its outcome.
    isOpen: (client) => certainStatus(client) === 'T',
    afterEnd: (client, callback) => ends.await(client, callback),
    pipelined: {
      begin: (options) => begin(pool, options),
      run: (statements, last, options, afterCommitSql) => run(pool, statements, last, options, afterCommitSql),
    },
  };
}

function inTransaction<Client extends PgClient>(pool: PgPool<Client>, client: PgClient): Executor {
  requireClient(client);
  requireSameDatabase(pool, client);
  const status = certainStatus(client);
  if (status === 'E') throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED');
  if (status === 'I') {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'This client is not between BEGIN and COMMIT.');
  }
  return client as Executor;
}

/** Calls back when a client's transaction has ended. */
class TransactionEnds {
  readonly #awaited = new WeakMap<object, { callbacks: Set<() => void>; stopListening: () => void }>();

  await(client: PgClient, callback: () => void): void {
    const known = this.#awaited.get(client);
    if (known) {
      known.callbacks.add(callback);
      return;
    }
    // 'drain' is emitted with the answer to the last statement sent, so there is nothing to poll.
    const look = () => {
      if (client.getTransactionStatus?.() === 'I') this.tell(client);
    };
    const inside = insideOf(client);
    inside.on?.('drain', look);
    this.#awaited.set(client, {
      callbacks: new Set([callback]),
      stopListening: () => void inside.removeListener?.('drain', look),
    });
  }

  tell(client: object): void {
    const known = this.#awaited.get(client);
    if (!known) return;
    this.#awaited.delete(client);
    known.stopListening();
    for (const callback of known.callbacks) callback();
  }
}
