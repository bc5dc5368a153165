import type { Executor } from '../../database/executor.ts';
import { PostcommitError } from '../../errors.ts';
import { examineRowSecurity } from '../examining/examine-row-security.ts';

/**
 * Fails if row-level security is active for the current role. Every claim would fail too (`row_security = off`), but one
 * table at a time, and a relay that has started would only log it.
 */
export async function requireAllRows(db: Executor, schema: string): Promise<void> {
  const mine = (await examineRowSecurity(db, schema)).find(({ isCurrent }) => isCurrent);
  if (mine === undefined) return;
  throw new PostcommitError(
    'POSTCOMMIT_E_ROW_SECURITY',
    `The role is ${mine.role}; tables: ${mine.tables.join(', ')}.`,
  );
}
