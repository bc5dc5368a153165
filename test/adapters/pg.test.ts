import pg from 'pg';
import { fromPg } from '../../src/adapters/pg.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { runAdapterConformance } from './run-conformance.ts';

async function connect(connectionString: string): Promise<AdapterClient<pg.PoolClient>> {
  const pool = quietPool(connectionString, { max: 4 });
  const idle = new pg.Client({ connectionString });
  idle.on('error', () => {});
  await idle.connect();
  return {
    db: fromPg(pool),
    async transaction(work, { isolation } = {}) {
      const client = await pool.connect();
      let broken: Error | undefined;
      try {
        await client.query(isolation ? `begin isolation level ${isolation}` : 'begin');
        const result = await work(client);
        await client.query('commit');
        return result;
      } catch (error) {
        await client.query('rollback').catch((lost: Error) => {
          broken = lost;
        });
        throw error;
      } finally {
        client.release(broken);
      }
    },
    query: (tx, text, values) => tx.query(text, values),
    notTransactions: { 'the pool': pool, 'a client outside of a transaction': idle },
    async close() {
      await idle.end();
      await pool.end();
    },
  };
}

runAdapterConformance('fromPg', connect);
