import pg from 'pg';
import type { TestDatabase } from './database.ts';

/** Sets a parameter for every later session of the database, as `ALTER DATABASE ... SET` does. */
export async function setForDatabase(db: TestDatabase, name: string, value: string): Promise<void> {
  const database = pg.escapeIdentifier(decodeURIComponent(new URL(db.url).pathname.slice(1)));
  await db.query(`alter database ${database} set ${pg.escapeIdentifier(name)} = ${pg.escapeLiteral(value)}`);
}
