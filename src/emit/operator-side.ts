import type { Executor } from '../database/executor.ts';
import { transactionSettingsSql } from '../database/statement-settings.ts';
import type { OutboxDatabase } from './outbox-database.ts';

/**
 * Runs each statement in a READ COMMITTED transaction of its own, with the settings of a relay's statements. For what
 * operators do: retention and partitions need a snapshot per statement, and under a SERIALIZABLE default bulk operations
 * would abort business transactions. Operators have more rights than others, who may be able to create functions in `public`.
 */
export function operatorSide<Tx>(db: OutboxDatabase<Tx>): Executor {
  return {
    async query(text, values) {
      const { tx, commit, rollback } = await db.begin({ isolation: 'read committed', pipeline: false });
      let result: Awaited<ReturnType<Executor['query']>>;
      try {
        result = await db.inTransaction(tx, async (executor) => {
          await executor.query(transactionSettingsSql);
          return executor.query(text, values);
        });
      } catch (error) {
        await rollback();
        throw error;
      }
      await commit();
      return result;
    },
  };
}
