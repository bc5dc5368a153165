import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { unshelve } from '../../src/outbox/delivering/unshelve.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';

describe.each(postgresVersions)('a trial after an outage, on PostgreSQL %i', (version) => {
  let db: TestDatabase;

  beforeAll(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    await db.query(`insert into postcommit.outbox_destinations (destination) values ('events'), ('other')`);
  }, 120_000);
  afterAll(async () => {
    await db?.close();
  });

  /** Two events of each key, and as many without one. */
  async function fill(keys: number): Promise<void> {
    await db.query('truncate postcommit.outbox_shelf, postcommit.outbox_queue');
    await db.query(
      `insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
       select d.destination, n, case when n % 2 = 0 then hashtextextended((n % $1::integer)::text, 0) end, 0, 0
         from generate_series(1, 4 * $1::integer) n, unnest(array['events', 'other']) as d(destination)
        where d.destination = 'events' or n % 3 = 0`,
      [keys],
    );
  }

  const trial = (countMax: number) =>
    unshelve(db.pool, 'postcommit', { destination: 'events', rateMax: 1_000_000, countMax, isTrial: true });

  async function taken(): Promise<{ seq: number; key: string | null }[]> {
    return await db.query('select seq::integer, key::text from postcommit.outbox_queue order by seq');
  }

  test('takes events of any key, not always the oldest', async () => {
    const seen = new Set<number>();
    for (let round = 0; round < 40; round++) {
      await fill(20);
      expect(await trial(10)).toBeGreaterThan(0);
      for (const { seq } of await taken()) seen.add(seq);
    }
    // Of 10 keys in turn and 40 events without one, each has its turn before long.
    expect(seen.size).toBeGreaterThan(30);
    // With a bound of one, too: a low rate must not mean the oldest again and again.
    const single = new Set<number>();
    for (let round = 0; round < 40; round++) {
      await fill(20);
      expect(await trial(1)).toBe(1);
      for (const { seq } of await taken()) single.add(seq);
    }
    expect(single.size).toBeGreaterThan(10);
  });

  test('takes of each key what is oldest: nothing can pass an event of its key (G4)', async () => {
    await fill(20);
    const rounds: { seq: number; key: string | null }[][] = [];
    while ((await trial(10)) > 0) {
      rounds.push(await taken());
      await db.query('truncate postcommit.outbox_queue');
    }
    const order = rounds.flat();
    expect(order).toHaveLength(80);
    const keys = new Set(order.flatMap(({ key }) => key ?? []));
    expect(keys.size).toBe(10);
    for (const key of keys) {
      const seqs = order.filter((row) => row.key === key).map(({ seq }) => seq);
      expect(seqs).toEqual([...seqs].sort((a, b) => a - b));
    }
    expect(await db.query(`select from postcommit.outbox_shelf`)).toEqual([]);
  });

  test('finds the events of its own destination among many of another', async () => {
    await db.query('truncate postcommit.outbox_shelf, postcommit.outbox_queue');
    await db.query(
      `insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
       select case when n = 5000 then 'events' else 'other' end, n, hashtextextended(n::text, 0), 0, 0
         from generate_series(1, 10000) n`,
    );
    for (let round = 0; round < 20 && (await trial(10)) === 0; round++);
    expect(await taken()).toMatchObject([{ seq: 5_000 }]);
    expect(await trial(10)).toBe(0);
  });
});
