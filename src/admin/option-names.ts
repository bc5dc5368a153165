import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';

/** Rejects options that are not an object, and option names that do not exist: a misspelt `signal` would have no effect. */
export function checkOptionNames(options: unknown, method: string, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${method}() takes its options as an object.`);
  }
  const unknown = unknownOption(options, known, `${method}()`);
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown);
}
