import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { AppliedMigration, AppliedRoutine } from '../../database/migrations.ts';
import { readJson } from '../read-json.ts';

const tableExistsSql = `
select to_json(exists (
  select from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where n.nspname = $1::text and c.relname = $2::text))::text as json`;

const examineMigrationsSql = perSchema(
  (s) => `
select json_build_object('version', m.version, 'name', m.name, 'checksum', m.checksum)::text as json
  from ${s}.migrations m order by m.version limit 10000`,
);

/** The applied migrations, oldest first; empty without an outbox. */
export async function examineMigrations(db: Executor, schema: string): Promise<AppliedMigration[]> {
  const [exists] = await readJson<boolean>(db, tableExistsSql, [schema, 'migrations']);
  return exists ? readJson<AppliedMigration>(db, examineMigrationsSql(schema)) : [];
}

const examineRoutinesSql = perSchema(
  (s) => `
select json_build_object('name', r.name, 'checksum', r.checksum, 'packageVersion', r.package_version)::text as json
  from ${s}.outbox_routines r order by r.name limit 10000`,
);

/** The applied routines, by name; empty if there are none. */
export async function examineRoutines(db: Executor, schema: string): Promise<AppliedRoutine[]> {
  const [exists] = await readJson<boolean>(db, tableExistsSql, [schema, 'outbox_routines']);
  return exists ? readJson<AppliedRoutine>(db, examineRoutinesSql(schema)) : [];
}
