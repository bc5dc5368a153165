import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';

/** What a statement on a lost connection fails with. A client that knows of the loss is closed. */
export const lostCodes: ReadonlySet<string> = new Set([
  'POSTCOMMIT_E_DATABASE_UNREACHABLE',
  'POSTCOMMIT_E_CLIENT_CLOSED',
]);

/**
 * Throws if a statement of the transaction has failed and its work has gone on: PostgreSQL then answers COMMIT with ROLLBACK, which
 * most clients report as a commit. The adapter of pg checks that answer itself.
 */
export async function requireUsable(executor: Executor): Promise<void> {
  try {
    await executor.query('select 1');
  } catch (error) {
    const coded = codedDatabaseError(error);
    if (coded instanceof PostcommitError && lostCodes.has(coded.code)) throw coded;
    throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED', undefined, { cause: error });
  }
}
