-- Returns one thing in the database that prevents partitioning of the given tables, as a sentence for the error; NULL if nothing
-- does. Most of them would keep reading the first partition as if it were the whole log.
create or replace function :"schema".find_partitioning_obstacle(given regclass[]) returns text
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select format('constraint %s of table %s refers to %s', conname, conrelid::regclass, confrelid::regclass)
    from pg_constraint where contype = 'f' and confrelid = any (given)
  union all
  select case v.relkind when 'm' then format('materialized view %s reads the log', v.oid::regclass)
                        else format('view %s reads the log and belongs to another role', v.oid::regclass) end
    from pg_class v join pg_rewrite r on r.ev_class = v.oid
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
   where (v.relkind = 'm' or v.relkind = 'v' and not pg_has_role(v.relowner, 'usage'))
     and d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)
  union all
  select format('row level security is on for %s', oid::regclass) from pg_class
   where oid = any (given) and relrowsecurity
  union all
  select format('a policy reads %s', d.refobjid::regclass) from pg_depend d
   where d.classid = 'pg_policy'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)
  union all
  select format('function %s is bound to the log', d.objid::regprocedure) from pg_depend d
   where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)
  union all
  -- Its next call would fail: a unique index over all partitions must contain more than the id.
  select format('function %s inserts into the log with ON CONFLICT (id), which partitions do not allow; use emit_once',
                p.oid::regprocedure)
    from pg_proc p
   where p.prosrc ~* '\moutbox_events\M.*\mon\s+conflict\s*\(\s*id\s*\)'
     and p.pronamespace <> to_regnamespace(quote_ident(:'schema'))
  union all
  select format('rule %s of %s uses the log', r.rulename, r.ev_class::regclass) from pg_rewrite r
    join pg_class c on c.oid = r.ev_class and c.relkind in ('r', 'p')
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
   where d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)
  union all
  select format('constraint %s refers from %s', conname, conrelid::regclass) from pg_constraint
   where contype = 'f' and conrelid = any (given)
  union all
  select format('unique index %s cannot span partitions', indexrelid::regclass) from pg_index
   where indrelid = any (given) and indisunique and not indisprimary
     and indexrelid <> coalesce(to_regclass(format('%I.outbox_events_id_key', :'schema')), 0::oid)
  union all
  select format('%s is in the publication %s', r.prrelid::regclass, p.pubname)
    from pg_publication_rel r join pg_publication p on p.oid = r.prpubid where r.prrelid = any (given)
  limit 1
$postcommit$;
revoke execute on function :"schema".find_partitioning_obstacle(regclass[]) from public;
