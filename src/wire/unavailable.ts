const unavailableBrand = Symbol.for('postcommit.Unavailable');

/**
 * Thrown by a serializer when what it depends on cannot be used now, e.g. a schema registry. It is to a serializer what the outcome
 * `unavailable` is to a publisher: no attempt is counted, and the events of the destination wait until it is up again.
 *
 * @example
 * import { Unavailable } from 'postcommit';
 *
 * throw new Unavailable('schema registry: connection refused');
 */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';
  // A brand and not instanceof: there may be two copies of this package in one process.
  readonly [unavailableBrand] = true;
}

export function isUnavailable(thrown: unknown): boolean {
  try {
    return thrown instanceof Error && (thrown as { [unavailableBrand]?: unknown })[unavailableBrand] === true;
  } catch {
    return false; // A proxy may throw.
  }
}
