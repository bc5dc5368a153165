import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const booksExistSql = `
select to_json(exists (
  select from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where n.nspname = $1::text and c.relname = 'migrations'))::text as json`;

const examineMigrationsSql = perSchema(
  (s) => `
select json_build_object('version', m.version, 'name', m.name, 'checksum', m.checksum)::text as json
  from ${s}.migrations m order by m.version limit 10000`,
);

/** A migration as the database's books have it. */
export interface AppliedMigration {
  version: number;
  name: string;
  checksum: string;
}

/** What was applied, oldest first; empty where there is no outbox. */
export async function examineMigrations(db: Executor, schema: string): Promise<AppliedMigration[]> {
  const [exists] = await readJson<boolean>(db, booksExistSql, [schema]);
  return exists ? readJson<AppliedMigration>(db, examineMigrationsSql(schema)) : [];
}
