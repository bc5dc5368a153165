import type { Executor } from '../database/executor.ts';
import { isStorable } from '../database/storable-text.ts';
import { PostcommitError } from '../errors.ts';
import { listDestinations } from '../outbox/operating/list-destinations.ts';
import { suggest } from '../suggest.ts';

export interface PauseOptions {
  /** Why, for whoever looks next: at most 500 characters. Default: none. */
  reason?: string;
}

const reasonCharsMax = 500;

/** Checks a `reason` option. Returns the empty text for none. */
export function checkReason(reason: unknown = ''): string {
  if (typeof reason !== 'string' || reason.length > reasonCharsMax) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      `reason must be a string of at most ${reasonCharsMax} characters.`,
    );
  }
  if (!isStorable(reason)) throw new PostcommitError('POSTCOMMIT_E_TEXT_NOT_STORABLE', 'It is in the reason.');
  return reason.trim();
}

/** Runs `change` for a destination; one that no relay has entered is an error that tells which there are. */
export async function changeDestination(
  db: Executor,
  schema: string,
  given: string,
  change: (db: Executor, schema: string, destination: string) => Promise<boolean>,
): Promise<void> {
  // What PostgreSQL cannot store is no destination's name, and would only make another error.
  if (typeof given === 'string' && isStorable(given) && (await change(db, schema, given))) return;
  throw await noSuchDestination(db, schema, given);
}

/** The error that names the known destinations and the most likely one. */
export async function noSuchDestination(db: Executor, schema: string, given: unknown): Promise<PostcommitError> {
  const known = (await listDestinations(db, schema)).map(({ name }) => name);
  return new PostcommitError('POSTCOMMIT_E_NO_SUCH_DESTINATION', whichThereAre(given, known));
}

const namesMax = 20;

function whichThereAre(given: unknown, known: readonly string[]): string {
  const got = `Got ${JSON.stringify(given)?.slice(0, 80) ?? String(given)}`;
  if (known.length === 0) return `${got}; there is none yet.`;
  const near = typeof given === 'string' ? suggest(given.slice(0, 80), known) : undefined;
  const more = known.length > namesMax ? ` and ${known.length - namesMax} more` : '';
  return `${got}; known are ${known.slice(0, namesMax).join(', ')}${more}.${near ? ` Did you mean ${near}?` : ''}`;
}
