-- Returns the statements that copy indexes, triggers and comment from an old table to a new one of the same name. A unique
-- index without the partition key cannot span partitions, so it is left out.
create or replace function :"schema".copies_of(given regclass) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select array(
    select format('alter table %s add constraint %I %s', given, conname, pg_get_constraintdef(oid))
      from pg_constraint where conrelid = given and contype = 'p'
    union all
    select pg_get_indexdef(indexrelid) from pg_index where indrelid = given and indisvalid and not indisunique
    union all
    select pg_get_triggerdef(oid) from pg_trigger where tgrelid = given and not tgisinternal
    union all
    select format('alter table %s %s trigger %I', given,
                  case tgenabled when 'D' then 'disable' when 'A' then 'enable always' else 'enable replica' end, tgname)
      from pg_trigger where tgrelid = given and not tgisinternal and tgenabled <> 'O'
    union all
    select format('comment on table %s is %L', given, obj_description(given, 'pg_class'))
     where obj_description(given, 'pg_class') is not null)
$postcommit$;
revoke execute on function :"schema".copies_of(regclass) from public;
