import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';

// Of other roles than the current one PostgreSQL says it only by its rules: superusers and BYPASSRLS are exempt, and so
// is the owner unless it is forced. Policies of a partition count only where the partition itself is named in a statement,
// which only functions with the owner's rights do.
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
  /** Whether it is the role that asks. */
  isCurrent: boolean;
  /** By its rights. Functions that prune, rotate and drop run as the owner. */
  usedAs: 'owner' | 'relay' | 'reader';
  /** Tables that it may read and that have row-level security for it, with the schema, as SQL writes them. */
  tables: string[];
}

/** The roles for which row-level security is active: the one that asks, the owner, and those that may read the queue. */
export function examineRowSecurity(db: Executor, schema: string): Promise<HiddenRows[]> {
  return readJson<HiddenRows>(db, examineRowSecuritySql, [schema]);
}
