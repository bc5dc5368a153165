import type { Executor } from '../database/executor.ts';
import { readCommittedSql, selectTransactionSettingsSql } from '../database/statement-settings.ts';
import type { OutboxDatabase } from './outbox-database.ts';

/**
 * The executor of `outbox.admin`: runs each statement in a READ COMMITTED transaction of its own, with the settings of a
 * relay's statements. Retention and partitions need a snapshot per statement, and under a SERIALIZABLE default bulk operations
 * would abort business transactions. Operators have more rights than other roles, which may be able to create functions in
 * `public`.
 */
export function adminExecutor<Tx>(db: Pick<OutboxDatabase<Tx>, 'transaction' | 'inTransaction'>): Executor {
  return {
    query: (text, values) =>
      db.transaction(async (tx) => {
        const executor = db.inTransaction(tx);
        await executor.query(readCommittedSql);
        await executor.query(selectTransactionSettingsSql);
        return executor.query(text, values);
      }),
  };
}
