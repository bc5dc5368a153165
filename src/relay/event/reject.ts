const rejectBrand = Symbol.for('postcommit.Reject');

/**
 * Thrown by a handler for an event that can never succeed: the event becomes a dead letter at once.
 *
 * @example
 * throw new Reject(`no such customer: ${event.payload.customerId}`);
 */
export class Reject extends Error {
  override readonly name = 'Reject';
  // A brand and not instanceof: there may be two copies of this package in one process.
  readonly [rejectBrand] = true;
}

export function isReject(thrown: unknown): boolean {
  try {
    return thrown instanceof Error && (thrown as { [rejectBrand]?: unknown })[rejectBrand] === true;
  } catch {
    return false; // A proxy may throw.
  }
}
