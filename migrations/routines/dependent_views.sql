-- Returns the definitions of views that read a table, as statements that recreate them on whatever table has its name then.
create or replace function :"schema".dependent_views(given regclass[]) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select array(
    select format('create or replace view %s%s as %s', v.oid::regclass,
                  coalesce(' with (' || array_to_string(v.reloptions, ', ') || ')', ''), pg_get_viewdef(v.oid))
      from pg_class v
     where v.relkind = 'v' and exists (
       select from pg_rewrite r join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
        where r.ev_class = v.oid and d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)))
$postcommit$;
revoke execute on function :"schema".dependent_views(regclass[]) from public;
