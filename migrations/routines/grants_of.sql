-- Returns the statements that grant the privileges on the given table to the same roles on another.
create or replace function :"schema".grants_of(given regclass, receiver text) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select array(
    select format('grant %s%s on %I.%I to %s%s', a.privilege_type, r.columns, :'schema', receiver,
                  case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end,
                  case when a.is_grantable then ' with grant option' else '' end)
      from (select relacl as acl, '' as columns from pg_class where oid = given
            union all
            select attacl, format(' (%I)', attname) from pg_attribute where attrelid = given and not attisdropped) r
      cross join lateral aclexplode(r.acl) a
     where a.grantee <> (select relowner from pg_class where oid = given))
$postcommit$;
revoke execute on function :"schema".grants_of(regclass, text) from public;
