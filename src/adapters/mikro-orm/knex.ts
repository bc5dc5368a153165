import type { Executor } from '../../database/executor.ts';
import { executorInTransaction } from '../pg/borrowed-client.ts';
import type { PgClient } from '../pg/client.ts';
import { notATransaction } from '../refusal.ts';
import type { KnexContext } from './transaction-log.ts';

interface KnexConnection {
  getKnex(): {
    client: { acquireConnection(): Promise<PgClient>; releaseConnection(client: PgClient): Promise<void> };
  };
}

/** Runs statements on the connection of the transaction. MikroORM itself would write the values into the text. */
export function knexExecutor(context: KnexContext): Executor {
  return {
    async query(text, values) {
      const client = await context.client.acquireConnection();
      // Knex sets it when it sends COMMIT or ROLLBACK, and nothing comes between this check and the statement.
      if (context.isCompleted()) throw notATransaction('The transaction has ended.');
      return executorInTransaction(client).query(text, values);
    },
  };
}

/** Runs statements on a connection of MikroORM's pool. */
export function knexSide(connection: KnexConnection): Executor {
  const { client: pool } = connection.getKnex();
  return {
    async query(text, values) {
      const client = await pool.acquireConnection();
      try {
        return await (client as Executor).query(text, values);
      } finally {
        await pool.releaseConnection(client);
      }
    },
  };
}
