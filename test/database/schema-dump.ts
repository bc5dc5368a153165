import type { TestDatabase } from '../support/database.ts';

const parts = {
  relations: `
    select c.relname, c.relkind, c.reloptions, obj_description(c.oid) as comment, pg_get_viewdef(c.oid) as view
      from pg_class c where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'v', 'p') order by 1`,
  columns: `
    select c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull, a.attidentity,
           pg_get_expr(d.adbin, d.adrelid) as default, col_description(c.oid, a.attnum) as comment
      from pg_class c join pg_attribute a on a.attrelid = c.oid left join pg_attrdef d on (d.adrelid, d.adnum) = (c.oid, a.attnum)
     where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'v', 'p') and a.attnum > 0 order by 1, 2`,
  indexes: `
    select pg_get_indexdef(i.indexrelid) as definition
      from pg_index i join pg_class c on c.oid = i.indrelid where c.relnamespace = $1::regnamespace order by 1`,
  constraints: `
    select conrelid::regclass::text as on, conname, pg_get_constraintdef(oid) as definition
      from pg_constraint where connamespace = $1::regnamespace order by 1, 2`,
  functions: `select pg_get_functiondef(oid) as definition from pg_proc where pronamespace = $1::regnamespace order by 1`,
  triggers: `
    select pg_get_triggerdef(t.oid) as definition from pg_trigger t join pg_class c on c.oid = t.tgrelid
     where c.relnamespace = $1::regnamespace and not t.tgisinternal order by 1`,
};

/** Everything in a schema that can differ, as the catalogue of PostgreSQL tells it. */
export async function schemaDump(database: TestDatabase, schema = 'postcommit'): Promise<Record<string, unknown[]>> {
  const dump: Record<string, unknown[]> = {};
  for (const [name, statement] of Object.entries(parts)) {
    dump[name] = await database.query(statement, [`"${schema.replaceAll('"', '""')}"`]);
  }
  return dump;
}
