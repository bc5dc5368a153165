import type { EventEmitter } from 'node:events';
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

/**
 * Calls the listeners of an event, as `emit` does. One that throws, at once or later, neither breaks the caller, nor keeps the other
 * listeners from being called, nor ends the process.
 */
export function callListeners(
  emitter: Pick<EventEmitter, 'rawListeners'>,
  name: string,
  facts: unknown,
  onError: (error: unknown) => void,
): void {
  for (const listener of emitter.rawListeners(name)) {
    callSafely(() => Reflect.apply(listener, emitter, [facts]), onError);
  }
}
