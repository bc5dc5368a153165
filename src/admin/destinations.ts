import type { Executor } from '../database/executor.ts';
import { isStorable } from '../database/storable-text.ts';
import { PostcommitError } from '../errors.ts';
import { listDestinations } from '../outbox/operating/list-destinations.ts';
import { suggest } from '../suggest.ts';

export interface PauseOptions {
  /** Why, shown by `destinations()`: at most 500 characters. Default: none. */
  reason?: string;
}

const reasonCharsMax = 500;

/** Checks a `reason` option, or another text about a change. Returns the empty text for none. */
export function checkReason(reason: unknown = '', name = 'reason'): string {
  if (typeof reason !== 'string' || reason.length > reasonCharsMax) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      `${name} must be a string of at most ${reasonCharsMax} characters.`,
    );
  }
  if (!isStorable(reason))
    throw new PostcommitError('POSTCOMMIT_E_TEXT_NOT_STORABLE', `The text is the option ${name}.`);
  return reason.trim();
}

/** Runs `change` for a destination. Fails with the names of all destinations if no relay has registered this one. */
export async function changeDestination(
  db: Executor,
  schema: string,
  name: string,
  change: (db: Executor, schema: string, destination: string) => Promise<boolean>,
): Promise<void> {
  // A text that PostgreSQL cannot store is not the name of a destination, and would cause a different error.
  if (typeof name === 'string' && isStorable(name) && (await change(db, schema, name))) return;
  throw await noSuchDestination(db, schema, name);
}

/** The error with the names of all destinations and the most similar one. */
export async function noSuchDestination(db: Executor, schema: string, name: unknown): Promise<PostcommitError> {
  const known = (await listDestinations(db, schema)).map(({ name }) => name);
  return new PostcommitError('POSTCOMMIT_E_NO_SUCH_DESTINATION', knownDestinations(name, known));
}

const namesMax = 20;

function knownDestinations(name: unknown, known: readonly string[]): string {
  const shown = JSON.stringify(name)?.slice(0, 80) ?? String(name);
  if (known.length === 0) return `Got ${shown}. No relay has registered a destination yet.`;
  const near = typeof name === 'string' ? suggest(name.slice(0, 80), known) : undefined;
  const more = known.length > namesMax ? ` and ${known.length - namesMax} more` : '';
  return `Got ${shown}. Known destinations: ${known.slice(0, namesMax).join(', ')}${more}.${near ? ` Did you mean ${near}?` : ''}`;
}
