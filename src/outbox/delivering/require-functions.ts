import type { Executor } from '../../database/executor.ts';
import { PostcommitError } from '../../errors.ts';

/** The functions that a relay needs. */
const functions = [
  'claim_many',
  'claim_one',
  'claim_next',
  'plain_payload',
  'settle',
  'settle_in_transaction',
  'fail',
  'sequence_state',
];

const requireSql = `
select f.name from unnest($2::text[]) as f (name)
 where not exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                    where n.nspname = $1::text and p.proname = f.name)`;

/** Fails if the schema is older than this package: the relay would appear healthy and claim nothing. */
export async function requireFunctions(db: Executor, schema: string): Promise<void> {
  const { rows } = await db.query(requireSql, [schema, functions]);
  if (rows.length === 0) return;
  const missing = rows.map(({ name }) => name).join(', ');
  throw new PostcommitError('POSTCOMMIT_E_MIGRATION_MISSING', `(no function ${missing} in the schema ${schema})`);
}
