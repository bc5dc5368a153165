import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';
import { defaultSchema, quoteIdentifier, quoteLiteral } from './identifier.ts';
import type { OutboxRole, TableRight } from './roles.ts';
import { roleRights } from './roles.ts';

/** The roles to write grants for, each by its name in the database. A role that is left out gets none. */
export interface GrantsOptions {
  /** The schema that holds the outbox. Default `postcommit`. */
  schema?: string;
  /** May insert events, and nothing else. */
  emitter?: string;
  /** May run a relay, and what operators do: dead letters, replay, pause. */
  relay?: string;
  /** May read everything. */
  reader?: string;
  /** May use the inbox: `processed_events`. */
  consumer?: string;
  /** Create the roles that do not exist yet, to log in with a password that you set. Default `false`. */
  create?: boolean;
}

const outboxRoles = Object.keys(roleRights) as OutboxRole[];

/**
 * Returns SQL that grants each role the minimum privileges it needs. Run it as the owner of the outbox's tables, once and again
 * after every migration. If no role is named, it is for `postcommit_emitter`, `postcommit_relay`, `postcommit_reader` and
 * `postcommit_consumer`. It revokes nothing.
 *
 * @example
 * import { grantsSql } from 'postcommit';
 * await pool.query(grantsSql({ emitter: 'shop', relay: 'shop_relay' }));
 */
export function grantsSql(options: GrantsOptions = {}): string {
  const schema = options.schema ?? defaultSchema;
  const s = quoteIdentifier(schema);
  const names = rolesOf(options);
  const parts = [
    // No names in comments: what follows a line break in a name would run as SQL.
    '-- The minimum privileges for an outbox. Run this as the owner of its tables, and again after every migration.',
    'begin;',
  ];
  for (const [role, name] of names) {
    const quoted = quoteRole(role, name);
    parts.push('', `-- The ${role}: ${roleRights[role].purpose}.`);
    if (options.create) parts.push(createRole(name, quoted));
    parts.push(`grant usage on schema ${s} to ${quoted};`);
    for (const right of roleRights[role].tables) parts.push(`grant ${rightOn(right, s)} to ${quoted};`);
    for (const signature of roleRights[role].routines) {
      parts.push(`grant execute on routine ${s}.${signature} to ${quoted};`);
    }
    if (role === 'relay') parts.push(grantMaintain(s, quoted));
  }
  return `${parts.join('\n')}\n\ncommit;\n`;
}

function rolesOf(options: GrantsOptions): [OutboxRole, string][] {
  const known = [...outboxRoles, 'schema', 'create'];
  const unknown = unknownOption(options, known);
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown);
  const named = outboxRoles.flatMap((role): [OutboxRole, string][] => {
    const name = options[role];
    return name === undefined ? [] : [[role, name]];
  });
  return named.length > 0 ? named : outboxRoles.map((role) => [role, `postcommit_${role}`]);
}

function quoteRole(role: OutboxRole, name: string): string {
  // PostgreSQL treats these two as keywords even when they are quoted, and PUBLIC means every role.
  if (name !== 'public' && name !== 'none') {
    try {
      return quoteIdentifier(name);
    } catch {
      // A role's name has the rules of a schema's name, and its own message.
    }
  }
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    `${role} must be the name of a role: 1 to 63 bytes, not beginning with pg_, and neither public nor none. Got ${JSON.stringify(name)}.`,
  );
}

function createRole(name: string, quoted: string): string {
  return anonymousBlock(`
  -- It can log in once it has a password.
  if not exists (select from pg_catalog.pg_roles where rolname = ${quoteLiteral(name)}) then create role ${quoted} login; end if;`);
}

function rightOn({ table, privileges, columns }: TableRight, s: string): string {
  const only = columns === undefined ? '' : ` (${columns.join(', ')})`;
  return `${privileges.map((privilege) => `${privilege}${only}`).join(', ')} on ${s}.${table}`;
}

/** The relay that does maintenance refreshes statistics: a right of its own since PostgreSQL 17, the owner's before. */
function grantMaintain(s: string, quoted: string): string {
  return anonymousBlock(`
  if current_setting('server_version_num')::integer >= 170000 then
    execute ${quoteLiteral(`grant maintain on ${s}.outbox_queue, ${s}.outbox_shelf to ${quoted}`)};
  end if;`);
}

function anonymousBlock(body: string): string {
  let tag = '$postcommit$';
  while (body.includes(tag)) tag = tag.replace(/\$$/, '_$');
  return `do ${tag} begin${body}\nend ${tag};`;
}
