import type { HiddenRows } from '../../outbox/examining/examine-row-security.ts';
import type { Judgement } from './finding.ts';
import { critical, ok, warning } from './finding.ts';

/** Whether policies may hide rows of the outbox from a role that must see all of them. */
export function judgeRowSecurity(affected: readonly HiddenRows[]): Judgement[] {
  if (affected.length === 0) return [ok('row-level security hides no rows of the outbox from the roles that use it')];
  return affected.map(({ role, quotedRole, usedAs, tables }) => {
    const what = `row-level security applies to the role ${JSON.stringify(role)} (${usedAs}) on ${tables.join(', ')}`;
    if (usedAs === 'owner') {
      const consequence = 'Pruning, partitions and emit_once fail: they run with the rights of the owner.';
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
          'A relay with this role does not start, and claims of one that runs fail: nothing is delivered.',
          fix,
        )
      : warning(what, 'What it reads of these tables fails, because rows may be hidden from it.', fix);
  });
}
