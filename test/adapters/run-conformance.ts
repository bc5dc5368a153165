import { afterAll, beforeAll, describe, it } from 'vitest';
import { type AdapterClient, adapterConformance, type ConformanceDatabase } from '../../src/testing/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

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
  });
}
