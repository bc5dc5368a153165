import { codedDatabaseError } from '../database/database-error.ts';

/** Runs `work` and gives errors of the database a code where Postcommit knows what to do. */
export async function withErrorCodes<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw codedDatabaseError(error);
  }
}
