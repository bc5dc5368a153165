import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { fromPg } from '../../src/adapters/pg.ts';
import { createInbox } from '../../src/index.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { runAdapterConformance } from './run-conformance.ts';
import { testStalledServer } from './stalled-server.ts';

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
testStalledServer('fromPg', (url) => {
  const pool = quietPool(url, { connectionTimeoutMillis: 300 });
  return { db: fromPg(pool), close: () => pool.end() };
});

test('a pool that has no connection in time is an outage', async () => {
  const database = await createTestDatabase();
  const pool = quietPool(database.url, { max: 1, connectionTimeoutMillis: 100 });
  const client = await pool.connect();
  onTestFinished(async () => {
    client.release();
    await pool.end();
    await database.close();
  });
  const inbox = createInbox({ db: fromPg(pool) });
  const failed = inbox.transaction({ consumer: 'billing', eventId: randomUUID() }, () => {});
  await expect(failed).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
});
