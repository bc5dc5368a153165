import type { HiddenRows } from '../../outbox/examining/examine-row-security.ts';
import type { CheckFinding } from './finding.ts';
import { critical, ok, warning } from './finding.ts';

/** Whether policies may hide rows of the outbox from a role that must see all rows. */
export function rowSecurityFindings(affected: readonly HiddenRows[]): CheckFinding[] {
  if (affected.length === 0) return [ok('row-level security hides no rows of the outbox from the roles that use it')];
  return affected.map(({ role, quotedRole, usedAs, tables }) => {
    const what = `row-level security applies to the role ${JSON.stringify(role)} (${usedAs}) on ${tables.join(', ')}`;
    if (usedAs === 'owner') {
      const consequence = 'Pruning, partitions and emit_once fail, because they run as the owner.';
      return warning(
        what,
        consequence,
        tables.map((table) => `alter table ${table} no force row level security;`).join(' '),
      );
    }
    const fix = `alter role ${quotedRole} bypassrls; -- or, for each of these tables: alter table ... disable row level security;`;
    return usedAs === 'relay'
      ? critical(
          what,
          'A relay with this role does not start, and the claims of a running relay fail. Nothing is delivered.',
          fix,
        )
      : warning(what, 'Reading these tables fails with this role, because rows may be hidden from it.', fix);
  });
}
