import { types } from 'node:util';

/**
 * Calls a function of the application that must change nothing when it fails: neither what it throws nor the rejection of a
 * promise that it returns, which would otherwise end the process. Other thenables are left alone: a query of Knex runs when
 * `then` is called.
 */
export function callSafely(call: () => unknown, onError: (error: unknown) => void): void {
  try {
    const returned = call();
    if (types.isPromise(returned)) returned.catch(onError);
  } catch (error) {
    onError(error);
  }
}
