import type { Executor } from '../../database/executor.ts';
import type { OutboxRole } from '../../database/roles.ts';
import { roleRights } from '../../database/roles.ts';
import { readJson } from '../read-json.ts';

// Names are looked up in the catalogue rather than cast: another check reports missing tables.
const examineRightsSql = `
with wanted as (
  select w.role, w.kind, w.object, w.privilege, w.of_column
    from jsonb_to_recordset($2::text::jsonb)
      as w(role text, kind text, object text, privilege text, of_column text)
), found as (
  select w.*, case
      when w.kind = 'routine' then (
        select bool_and(has_function_privilege(p.oid, 'execute')) from pg_proc p
         where p.pronamespace = n.oid and p.proname = split_part(w.object, '(', 1))
      when w.of_column is not null then (
        select has_column_privilege(c.oid, w.of_column, w.privilege) from pg_class c
          join pg_attribute a on a.attrelid = c.oid and a.attname = w.of_column
         where c.relnamespace = n.oid and c.relname = w.object)
      else (select has_table_privilege(c.oid, w.privilege) from pg_class c
             where c.relnamespace = n.oid and c.relname = w.object)
    end as has
    from wanted w, pg_namespace n where n.nspname = $1::text
)
select json_build_object(
  'currentRole', current_user,
  'superuser', (select r.rolsuper from pg_roles r where r.rolname = current_user),
  'owner', (select coalesce(bool_or(pg_has_role(c.relowner, 'usage')), false) from pg_class c
              join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1::text and c.relname = 'outbox_events'),
  'usage', (select has_schema_privilege(n.oid, 'usage') from pg_namespace n where n.nspname = $1::text),
  'missing', (select coalesce(json_agg(distinct jsonb_build_object(
                'role', f.role, 'right', f.privilege || ' on ' || f.object)), '[]') from found f where not f.has)
)::text as json`;

/** What the current role may do. */
export interface RightsFacts {
  currentRole: string;
  superuser: boolean;
  /** Whether it owns the tables, or is a member of the role that does. */
  owner: boolean;
  /** Whether it has USAGE on the schema; `null` if there is no schema. */
  usage: boolean | null;
  /** Missing privileges for each kind of role: `insert on outbox_events`. */
  missing: { role: OutboxRole; right: string }[];
}

const wantedText = JSON.stringify(
  Object.entries(roleRights).flatMap(([role, { tables, routines }]) => [
    ...tables.flatMap(({ table, privileges, columns }) =>
      privileges.flatMap((privilege) =>
        (columns ?? [null]).map((column) => ({ role, kind: 'table', object: table, privilege, of_column: column })),
      ),
    ),
    ...routines.map((object) => ({ role, kind: 'routine', object, privilege: 'execute', of_column: null })),
  ]),
);

export async function examineRights(db: Executor, schema: string): Promise<RightsFacts> {
  const [facts] = await readJson<RightsFacts>(db, examineRightsSql, [schema, wantedText]);
  return facts as RightsFacts;
}
