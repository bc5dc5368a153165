import type { Statement } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';

/** Statements that end the transaction. A rollback to a savepoint does not. */
const endsTransaction =
  /^\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!\s+(?:work\s+|transaction\s+)?to\b))\b/i;

/** Refuses what is not a list of statements for outbox.transaction(), and statements that would end the transaction. */
export function requireStatements(statements: readonly Statement[]): void {
  if (!Array.isArray(statements) || !statements.every((statement) => typeof statement?.text === 'string')) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      'outbox.transaction() takes a function, or a list of statements: [{ text, values }].',
    );
  }
  const ending = statements.find(({ text }) => endsTransaction.test(text));
  if (ending) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      `outbox.transaction() commits by itself, and nothing was sent: remove "${ending.text.trim().slice(0, 40)}" from its statements.`,
    );
  }
}
