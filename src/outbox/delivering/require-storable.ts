import { isRefusedValue } from '../../database/database-error.ts';
import type { Executor } from '../../database/executor.ts';
import { toAscii } from '../../database/storable-text.ts';
import { PostcommitError } from '../../errors.ts';

/** Fails if the encoding of the database lacks a character of one of these names: nothing could be stored under it. */
export async function requireStorable(db: Executor, names: Iterable<string>): Promise<void> {
  for (const name of names) {
    if (toAscii(name) === name) continue;
    try {
      await db.query('select $1::text', [name]);
    } catch (error) {
      if (!isRefusedValue(error)) throw error;
      throw new PostcommitError('POSTCOMMIT_E_TEXT_NOT_STORABLE', `It is the name '${name}'.`, { cause: error });
    }
  }
}
