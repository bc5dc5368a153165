import { PostcommitError } from '../errors.ts';

/** Rejects options that are not an object, and option names that do not exist: a misspelt `signal` would have no effect. */
export function checkOptionNames(options: unknown, method: string, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${method}() takes its options as an object.`);
  }
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const detail = `${method}() has no option ${JSON.stringify(unknown)}. Its options are ${known.join(', ')}.`;
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
