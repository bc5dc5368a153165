import type pg from 'pg';
import { PostcommitError } from '../../errors.ts';

/** What refusing a query needs of a query object, such as a cursor. */
interface QueryObject {
  submit: unknown;
  callback?: unknown;
  handleError(error: Error): void;
}

/**
 * The client of a session as the handler of one call gets it. A handler may keep it longer than its call takes, in a promise that
 * nothing awaits. By then the session is idle or in the transaction of another event, so nothing is sent once `isOpen` returns
 * false.
 *
 * Its state is that of the client itself: adapters read it, and listen for the end of the transaction, which comes after the call.
 */
export function handlerClient(client: pg.Client, isOpen: () => boolean): pg.Client {
  const lent = Object.create(client) as { query: unknown; end: unknown };
  lent.query = (...args: Parameters<pg.Client['query']>) => (isOpen() ? client.query(...args) : refuseQuery(args));
  lent.end = (...args: Parameters<pg.Client['end']>) => (isOpen() ? client.end(...args) : refuseCall(args));
  return new Proxy(lent as pg.Client, {
    // The methods of the client write to `this`. What is replaced here stays with this call.
    set: (target, name, value) => Reflect.set(Object.hasOwn(target, name) ? target : client, name, value),
  });
}

/** As `pg` refuses what is sent on a closed client: to the callback, or to the query object, or with a promise. */
function refuseQuery(args: readonly unknown[]): unknown {
  const query = args[0] as QueryObject | undefined;
  if (typeof query?.submit !== 'function') return refuseCall([...args, query?.callback]);
  query.callback ??= args.find((arg) => typeof arg === 'function');
  process.nextTick(() => query.handleError(refusal()));
  return query;
}

function refuseCall(args: readonly unknown[]): Promise<never> | undefined {
  const callback = args.find((arg) => typeof arg === 'function');
  if (callback === undefined) return Promise.reject(refusal());
  process.nextTick(callback as (error: Error) => void, refusal());
  return undefined;
}

function refusal(): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_NO_HANDLER_TRANSACTION');
}
