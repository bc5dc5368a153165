import type { Executor } from './executor.ts';

const schemaCreatorsSql = `
select case when a.grantee = 0 then 'PUBLIC' else a.grantee::regrole::text end as role
  from pg_namespace n cross join lateral aclexplode(n.nspacl) a
 where n.nspname = $1::text and a.privilege_type = 'CREATE' and a.grantee <> n.nspowner
   and not exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'outbox_events' and c.relowner = a.grantee)
 order by 1`;

/**
 * The roles besides the owner that may create objects in the outbox's schema. Each can create an overload of an outbox
 * function there, for others to call. On PostgreSQL 14 every role may do so in the schema `public`.
 */
export async function readSchemaCreators(db: Executor, schema: string): Promise<string[]> {
  const { rows } = await db.query(schemaCreatorsSql, [schema]);
  return rows.map(({ role }) => role as string);
}
