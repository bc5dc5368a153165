import { PostcommitError } from '../errors.ts';

/** The isolation levels that PostgreSQL distinguishes. */
export type Isolation = 'read committed' | 'repeatable read' | 'serializable';

const levels: readonly unknown[] = ['read committed', 'repeatable read', 'serializable'];

/** `isolation level …`, for BEGIN and SET TRANSACTION. */
export function isolationSql(isolation: Isolation): string {
  if (levels.includes(isolation)) return `isolation level ${isolation}`;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    `isolation must be one of ${levels.join(', ')}. Got ${JSON.stringify(isolation)}.`,
  );
}
