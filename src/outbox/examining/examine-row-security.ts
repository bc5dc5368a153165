import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';

// For roles other than the current one only the rules apply: superusers and BYPASSRLS are exempt, and so is the owner unless
// row security is forced. Policies of a partition matter only where a statement names the partition itself, which only
// SECURITY DEFINER functions do.
const examineRowSecuritySql = `
with secured as (
  select c.oid, c.relowner, c.relforcerowsecurity, c.relispartition, c.oid::regclass::text as name
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where n.nspname = $1::text and c.relkind in ('r', 'p') and c.relrowsecurity
     and (c.relname like 'outbox\\_%' or c.relname in ('processed_events', 'migrations'))
), queue as (
  select c.oid, c.relowner, c.relacl from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where n.nspname = $1::text and c.relname = 'outbox_queue'
), used as (
  select r.oid, r.rolname, r.rolsuper or r.rolbypassrls as exempt,
         case when r.oid = q.relowner then 'owner'
              when has_table_privilege(r.oid, q.oid, 'delete') then 'relay' else 'reader' end as used_as
    from queue q cross join pg_roles r
   where r.rolname = current_user or r.oid = q.relowner
      or r.oid in (select a.grantee from aclexplode(q.relacl) a where a.privilege_type = 'SELECT')
)
select json_build_object(
  'role', u.rolname, 'quotedRole', quote_ident(u.rolname), 'isCurrent', u.rolname = current_user, 'usedAs', u.used_as,
  'tables', json_agg(s.name order by s.name))::text as json
  from used u join secured s
    on case when u.rolname = current_user and not s.relispartition then row_security_active(s.oid)
            else not u.exempt and (s.relforcerowsecurity or not pg_has_role(u.oid, s.relowner, 'usage')) end
 where has_table_privilege(u.oid, s.oid, 'select') and (u.used_as = 'owner' or not s.relispartition)
 group by u.rolname, u.used_as
 order by u.rolname`;

/** A role from which policies may hide rows of the outbox. */
export interface HiddenRows {
  role: string;
  /** As SQL writes it. */
  quotedRole: string;
  /** Whether it is the current role. */
  isCurrent: boolean;
  /** What the role is used for, by its privileges. Functions that prune, rotate and drop run as the owner. */
  usedAs: 'owner' | 'relay' | 'reader';
  /** Schema-qualified tables that it may read with row-level security active for it, quoted for SQL. */
  tables: string[];
}

/** The roles for which row-level security is active: the current role, the owner, and those that may read the queue. */
export function examineRowSecurity(db: Executor, schema: string): Promise<HiddenRows[]> {
  return readJson<HiddenRows>(db, examineRowSecuritySql, [schema]);
}
