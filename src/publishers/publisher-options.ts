import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { unknownOption } from '../suggest.ts';

/** Reads the options of a publisher's factory. A wrong option is refused at once, before anything is connected. */
export interface OptionReader<T extends object> {
  whole(name: keyof T & string, fallback: number, min: number, max: number): number;
  flag(name: keyof T & string, fallback: boolean): boolean;
  text(name: keyof T & string): string | undefined;
  fail(detail: string): PostcommitError;
}

export function readOptions<T extends object>(
  factory: string,
  given: T,
  known: readonly (keyof T & string)[],
): OptionReader<T> {
  const fail = (detail: string) => new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${factory}(): ${detail}`);
  if (typeof given !== 'object' || given === null) throw fail('takes an object of options.');
  const unknown = unknownOption(given, known);
  if (unknown !== undefined) throw fail(unknown);
  return {
    fail,
    whole(name, fallback, min, max) {
      const value: unknown = given[name] ?? fallback;
      if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return value as number;
      throw fail(`${name} must be a whole number from ${min} to ${max}. Got ${shown(value)}.`);
    },
    flag(name, fallback) {
      const value: unknown = given[name] ?? fallback;
      if (typeof value === 'boolean') return value;
      throw fail(`${name} must be true or false. Got ${shown(value)}.`);
    },
    text(name) {
      const value: unknown = given[name];
      if (value === undefined || (typeof value === 'string' && value !== '')) return value;
      throw fail(`${name} must be a text that is not empty.`);
    },
  };
}
