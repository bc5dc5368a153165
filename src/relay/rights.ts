import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { defaultSchema } from '../database/identifier.ts';
import type { OutboxRole } from '../database/roles.ts';
import { PostcommitError } from '../errors.ts';
import { shellQuoted } from '../format.ts';
import { examineRights } from '../outbox/examining/examine-rights.ts';
import type { Logger } from '../telemetry/logging.ts';

const namedMax = 6;

/** Adds to the error of a missing privilege which role lacks what, and the command that grants it. Returns others unchanged. */
export async function explainDenied(error: unknown, db: Executor, schema: string): Promise<unknown> {
  const coded = codedDatabaseError(error);
  if (!(coded instanceof PostcommitError) || coded.code !== 'POSTCOMMIT_E_PERMISSION_DENIED') return error;
  try {
    const { role, lacking } = await findLacking(db, schema, 'relay');
    const what = lacking.length === 0 ? '' : `, which lacks ${shortened(lacking)}`;
    const why = `${coded.detail} The relay is connected as ${role}${what}. ${grantCommand(schema, role, '--relay')}`;
    return new PostcommitError('POSTCOMMIT_E_PERMISSION_DENIED', why, { cause: error });
  } catch {
    return error;
  }
}

/** A relay with schedules starts without the rights of an emitter, because it delivers all the same, but its ticks fail. */
export async function warnIfItCannotEmit(db: Executor, schema: string, logger: Logger): Promise<void> {
  const { role, lacking } = await findLacking(db, schema, 'emitter');
  if (lacking.length === 0) return;
  logger.warn(
    { role, lacks: shortened(lacking), fix: grantCommand(schema, role, '--emitter', '--relay') },
    'the role of the relay may not emit, so its schedules fail',
  );
}

async function findLacking(
  db: Executor,
  schema: string,
  role: OutboxRole,
): Promise<{ role: string; lacking: string[] }> {
  const { currentRole, usage, missing } = await examineRights(db, schema);
  const rights = missing.filter((each) => each.role === role).map(({ right }) => right);
  return { role: currentRole, lacking: usage === false ? ['usage on the schema', ...rights] : rights };
}

function shortened(rights: readonly string[]): string {
  const more = rights.length > namedMax ? ` and ${rights.length - namedMax} more` : '';
  return rights.slice(0, namedMax).join(', ') + more;
}

function grantCommand(schema: string, role: string, ...flags: string[]): string {
  const inSchema = schema === defaultSchema ? '' : ` --schema ${shellQuoted(schema)}`;
  const command = `npx postcommit grants${inSchema} ${flags.map((flag) => `${flag} ${shellQuoted(role)}`).join(' ')}`;
  return `Run the SQL that this command prints in this database, as the owner of the tables: ${command}`;
}
