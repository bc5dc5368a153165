import { migrate } from '../../src/database/migrate.ts';
import { createTestDatabase, type TestDatabase } from './database.ts';

export interface SettableClock {
  db: TestDatabase;
  /** Sets the database's clock forward, or back, by so many milliseconds. */
  shift(ms: number): Promise<void>;
}

/**
 * A database with an outbox whose clock can be set: now() and clock_timestamp() of this one database are replaced by functions
 * that add what a table says. Before the migrations, because a column's default keeps the function it was created with.
 */
export async function createDatabaseWithClock(options: { serverUrl?: string } = {}): Promise<SettableClock> {
  const db = await createTestDatabase({ ...options, migrate: false });
  await db.query(`
    create table public.clock (shift interval not null);
    insert into public.clock values ('0');
    alter function pg_catalog.now() rename to true_now;
    alter function pg_catalog.clock_timestamp() rename to true_clock_timestamp;
    create function pg_catalog.now() returns timestamptz language sql stable
      as 'select pg_catalog.true_now() + (select shift from public.clock)';
    create function pg_catalog.clock_timestamp() returns timestamptz language sql volatile
      as 'select pg_catalog.true_clock_timestamp() + (select shift from public.clock)';`);
  await migrate({ connectionString: db.url });
  return {
    db,
    async shift(ms) {
      await db.query(`update public.clock set shift = shift + $1::double precision * interval '1 millisecond'`, [ms]);
    },
  };
}
