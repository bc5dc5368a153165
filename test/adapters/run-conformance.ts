import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createOutbox } from '../../src/index.ts';
import { type AdapterClient, adapterConformance, type ConformanceDatabase } from '../../src/testing/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { startCountingProxy } from './counting-proxy.ts';

/** Runs the conformance suite for adapters on two databases of its own. */
export function runAdapterConformance<Tx>(
  name: string,
  connect: (connectionString: string) => Promise<AdapterClient<Tx>>,
): void {
  describe(name, () => {
    const databases: TestDatabase[] = [];
    beforeAll(async () => {
      for (let n = 0; n < 2; n++) databases.push(await createTestDatabase());
    });
    afterAll(async () => {
      for (const database of databases) await database.close();
    });
    const database = (n: number): ConformanceDatabase => {
      const get = () => databases[n] as TestDatabase;
      return {
        get connectionString() {
          return get().url;
        },
        query: (text, values) => get().pool.query(text, values),
      };
    };
    const checks = adapterConformance({
      connect: ({ connectionString }) => connect(connectionString),
      database: database(0),
      otherDatabase: database(1),
    });
    for (const check of checks) it(check.name, check.run, 60_000);

    it('an event is one round trip in a transaction that has written', async () => {
      const proxy = await startCountingProxy(database(0).connectionString);
      onTestFinished(() => proxy.close());
      await database(0).query('truncate conformance_orders');
      const client = await connect(proxy.url);
      onTestFinished(() => client.close());
      const outbox = createOutbox({ db: client.db, notify: false });
      const event = { type: 'order.created', aggregate: ['order', '1'] as [string, string], payload: {} };
      const counts: number[] = [];
      await client.transaction(async (tx) => {
        await client.query(tx, 'insert into conformance_orders (id) values ($1)', ['1']);
        // Where the client prepares statements, the first one takes longer.
        for (let n = 0; n < 3; n++) {
          const before = proxy.roundTrips();
          await outbox.emit(tx, event);
          counts.push(proxy.roundTrips() - before);
        }
      });
      expect(counts.slice(1)).toEqual([1, 1]);
    });
  });
}
