import { quoteIdentifier } from '../../database/identifier.ts';
import type { OutboxRole } from '../../database/roles.ts';
import { roleRights } from '../../database/roles.ts';
import { shellQuoted } from '../../format.ts';
import type { RightsFacts } from '../../outbox/examining/examine-rights.ts';
import type { CheckFinding } from './finding.ts';
import { note, ok, warning } from './finding.ts';

const listedMax = 6;

/** Whether others may create in the schema: an overload there fits a call better than the outbox's function if its types do. */
export function schemaCreatorFindings(schema: string, creators: readonly string[]): CheckFinding[] {
  if (creators.length === 0) return [];
  const who = creators.join(', ');
  const what = `${who} may create functions in the schema ${schema}`;
  const consequence =
    'SQL that calls a function of the outbox with untyped literals may run an overload of theirs instead.';
  return [warning(what, consequence, `revoke create on schema ${quoteIdentifier(schema)} from ${who}`)];
}

/** What the current role may be used for. A role that may only emit is not a problem. */
export function rightsFindings({ currentRole, superuser, owner, usage, missing }: RightsFacts): CheckFinding[] {
  const name = JSON.stringify(currentRole);
  if (superuser || owner) {
    const what = `the role ${name} ${superuser ? 'is a superuser' : 'owns the tables'}`;
    const consequence =
      'This is fine for migrations. A compromised service with this role could change or delete everything in the outbox.';
    return [note(what, consequence, 'npx postcommit grants --create')];
  }
  const roles = Object.keys(roleRights) as OutboxRole[];
  const able = roles.filter((role) => usage && !missing.some((each) => each.role === role));
  if (able.length === 0) {
    const what = `the role ${name} may not emit, relay, read or use the inbox${usage ? '' : ': it lacks USAGE on the schema'}`;
    return [warning(what, 'Every statement of this role fails.', 'npx postcommit grants --help')];
  }
  return [
    ok(`the role ${name} has the privileges of ${able.map((role) => `${article(role)} ${role}`).join(' and ')}`),
    ...roles
      .filter((role) => !able.includes(role) && isPartly(role, missing))
      .map((role) => {
        const lacking = missing.filter((each) => each.role === role).map(({ right }) => right);
        const shown = lacking.slice(0, listedMax).join(', ');
        const more = lacking.length > listedMax ? ` and ${lacking.length - listedMax} more` : '';
        const what = `the role ${name} lacks privileges of ${article(role)} ${role}: ${shown}${more}`;
        return warning(
          what,
          `If you use it as ${article(role)} ${role}, some of its statements fail.`,
          `npx postcommit grants --${role} ${shellQuoted(currentRole)}`,
        );
      }),
  ];
}

/** Whether it has some of the privileges to change rows. A reader has none of them. */
function isPartly(role: OutboxRole, missing: RightsFacts['missing']): boolean {
  const changes = roleRights[role].tables.flatMap(({ table, privileges }) =>
    privileges.filter((privilege) => privilege !== 'select').map((privilege) => `${privilege} on ${table}`),
  );
  const lacking = new Set(missing.filter((each) => each.role === role).map(({ right }) => right));
  return changes.some((right) => !lacking.has(right));
}

function article(role: OutboxRole): string {
  return role === 'emitter' ? 'an' : 'a';
}
