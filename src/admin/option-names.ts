import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';

/** Rejects options that are not an object, and option names that do not exist: a misspelt `signal` would have no effect. */
export function checkOptionNames(options: unknown, method: string, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${method}() takes its options as an object.`);
  }
  const unknown = unknownOption(options, known, `${method}()`);
  if (unknown === undefined) return;
  // The flag of the command line has the name that the audit shows, and the options another one.
  const hint = 'why' in options && known.includes('reason') ? ' --why of the command line is the option reason.' : '';
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${unknown}${hint}`);
}
