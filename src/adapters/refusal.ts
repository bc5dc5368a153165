import { PostcommitError } from '../errors.ts';

/** The error for a handle that is not an open transaction of the client. `detail` says what to pass instead. */
export function notATransaction(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', detail);
}

/** The error for an argument that is not the client's root object. */
export function wrongClient(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
