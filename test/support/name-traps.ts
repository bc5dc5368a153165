import { readdirSync, readFileSync } from 'node:fs';
import type pg from 'pg';

/** Types that values in our statements have. */
const types = [
  'text',
  'integer',
  'bigint',
  'double precision',
  'numeric',
  'boolean',
  'uuid',
  'json',
  'jsonb',
  'timestamptz',
  'interval',
  'oid',
  'regclass',
  'name',
  '"char"',
  'text[]',
  'integer[]',
  'bigint[]',
  'uuid[]',
  'int8range',
  'int8multirange',
];

const operators = [
  '||',
  '&&',
  '@>',
  '<@',
  '#',
  '&',
  '|',
  '+',
  '-',
  '*',
  '/',
  '=',
  '<>',
  '<',
  '<=',
  '>',
  '>=',
  '->',
  '->>',
  '~',
];

/** Every name that is called like a function in our SQL. */
function calledNames(): string[] {
  const names = new Set<string>();
  for (const folder of ['migrations', 'src']) {
    for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      if (!/\.(sql|ts)$/.test(file)) continue;
      const text = readFileSync(`${folder}/${file}`, 'utf8');
      for (const [, name] of text.matchAll(/\b([a-z][a-z0-9_]*)\(/g)) names.add(name as string);
    }
  }
  return [...names];
}

/**
 * Creates, as a role that may create in `public`, functions and operators that PostgreSQL prefers to those of pg_catalog
 * because their argument types fit better. Each records who ran it. `admin` is a superuser whose own search_path is safe.
 * Returns how to read the record.
 */
export async function setNameTraps(admin: pg.Client, role: string): Promise<() => Promise<string[]>> {
  await admin.query('create table public.sprung (name text, who text)');
  await admin.query('grant insert on public.sprung to public');
  await admin.query(`grant create, usage on schema public to "${role}"`);
  const names = calledNames();
  await admin.query(`set role "${role}"`);
  try {
    // One signature per pg_catalog function and type: polymorphic arguments become the type, any other single argument too.
    await admin.query(
      `do $do$
       declare
         f record; t text; args text[]; n integer; arg text; position integer;
         signature text;
       begin
         for f in
           select p.proname, p.pronargs,
                  array(select format_type(a, null) from unnest(p.proargtypes::oid[]) with ordinality x(a, o) order by o) as args
             from pg_proc p
            where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any ($names$${toArray(names)}$names$::text[])
              and p.pronargs between 1 and 6
         loop
           foreach t in array $types$${toArray(types)}$types$::text[] loop
             for position in 0 .. f.pronargs loop
               args := f.args;
               for n in 1 .. f.pronargs loop
                 arg := f.args[n];
                 if arg in ('anyelement', 'anynonarray', 'anycompatible', 'anycompatiblenonarray', '"any"', 'anyenum') then
                   args[n] := t;
                 elsif arg in ('anyarray', 'anycompatiblearray') then
                   args[n] := case when t like '%[]' then t else t || '[]' end;
                 elsif arg in ('anyrange', 'anycompatiblerange') then
                   args[n] := 'int8range';
                 elsif arg in ('anymultirange', 'anycompatiblemultirange') then
                   args[n] := 'int8multirange';
                 elsif n = position then
                   args[n] := t;
                 end if;
               end loop;
               signature := format('public.%I(%s)', f.proname, array_to_string(args, ', '));
               begin
                 execute format($f$create function %s returns text language plpgsql as $b$
                   begin insert into public.sprung values (%L, current_user); return null; end $b$ $f$, signature, signature);
               exception when others then null; -- It exists, or cannot be called so.
               end;
             end loop;
           end loop;
         end loop;
       end $do$`,
    );
    // VARIADIC "any" takes any number: some of one type each.
    for (const name of [
      'concat',
      'concat_ws',
      'format',
      'json_build_object',
      'jsonb_build_object',
      'json_build_array',
      'jsonb_build_array',
      'num_nulls',
    ]) {
      for (let count = 1; count <= 12; count++) {
        for (const type of ['text', 'bigint']) {
          const args = Array(count).fill(type).join(', ');
          await admin.query(
            `create or replace function public.${name}(${args}) returns text language plpgsql as $b$
               begin insert into public.sprung values ('${name}(${args})', current_user); return null; end $b$`,
          );
        }
      }
    }
    await admin.query(
      `do $do$
       declare l text; r text; o text;
       begin
         foreach l in array $types$${toArray(types)}$types$::text[] loop
           foreach r in array $types$${toArray(types)}$types$::text[] loop
             execute format($f$create function public.operate(l %s, r %s) returns boolean language plpgsql as $b$
               begin insert into public.sprung values (%L, current_user); return true; end $b$ $f$, l, r, l || ' operator ' || r);
             foreach o in array $operators$${toArray(operators)}$operators$::text[] loop
               execute format('create operator public.%s (function = public.operate, leftarg = %s, rightarg = %s)', o, l, r);
             end loop;
           end loop;
         end loop;
       end $do$`,
    );
  } finally {
    await admin.query('reset role');
  }
  return async () => {
    const { rows } = await admin.query<{ name: string; who: string }>('select distinct name, who from public.sprung');
    return rows.map(({ name, who }) => `${name} ran as ${who}`).sort();
  };
}

function toArray(values: readonly string[]): string {
  return `{${values.map((value) => `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`).join(',')}}`;
}
