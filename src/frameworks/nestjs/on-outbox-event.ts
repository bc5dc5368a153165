import { PostcommitError } from '../../errors.ts';
import type { HandlerPolicy } from '../../relay/deliver/handlers.ts';
import { unknownOption } from '../../suggest.ts';
import type { EventClass } from './outbox-event.ts';
import { eventTypeOf } from './outbox-event.ts';

/** How the relay treats the handler; what is left out is as its options say. */
export interface OnOutboxEventOptions extends HandlerPolicy {
  /**
   * The handler's name, by which progress is kept: an event whose handler was renamed in between reaches it again. Default: the
   * names of class and method, `OrderMails.sendReceipt`. Give one where a bundler shortens class names.
   */
  name?: string;
}

/** What the decorator leaves at a method. */
export interface HandlerMark {
  types: readonly string[];
  options: OnOutboxEventOptions;
}

/** Fits methods with both kinds of decorators, `experimentalDecorators` and the standard ones. */
export type HandlerDecorator = (
  // biome-ignore lint/suspicious/noExplicitAny: the prototype, or the method itself.
  target: any,
  // biome-ignore lint/suspicious/noExplicitAny: the name of the method, or the context of a standard decorator.
  keyOrContext: any,
  // biome-ignore lint/suspicious/noExplicitAny: only the first kind has it.
  descriptor?: any,
) => void;

// The same in every copy of the package, and needs no reflect-metadata.
const marks = Symbol.for('postcommit.nestjs.handlers');

type Marked = { [marks]?: HandlerMark[] };

const optionNames: readonly string[] = ['name', 'transactional', 'timeoutMs', 'retry', 'inFlightMax', 'rateMax'];

/**
 * Makes a method of any provider a handler for events: called with `(payload, context)`, at least once for each event. Events are
 * given by class, by type name, or by pattern (`order.*`); options may come last. A method may have several decorators.
 *
 * @example
 * import type { OutboxEventContext } from 'postcommit/nestjs';
 * import { OnOutboxEvent } from 'postcommit/nestjs';
 *
 * class OrderMails {
 *   async sendReceipt(payload: { orderId: string }, context: OutboxEventContext) {
 *     await sendReceipt(payload, { idempotencyKey: context.idempotencyKey });
 *   }
 * }
 * // @OnOutboxEvent('order.created', { timeoutMs: 60_000 }) above the method, or without decorators:
 * OnOutboxEvent('order.created', { timeoutMs: 60_000 })(OrderMails.prototype, 'sendReceipt');
 */
export function OnOutboxEvent(...given: (EventClass | string | OnOutboxEventOptions)[]): HandlerDecorator {
  const last = given.at(-1);
  const hasOptions = typeof last === 'object' && last !== null;
  const options = hasOptions ? (last as OnOutboxEventOptions) : {};
  const types = (hasOptions ? given.slice(0, -1) : given).map((event) =>
    typeof event === 'string' && event !== '' ? event : eventTypeOf(event),
  );
  if (types.length === 0) throw bad('@OnOutboxEvent() needs an event: a class with eventType, or the name of a type.');
  const unknown = unknownOption(options, optionNames, '@OnOutboxEvent()');
  if (unknown !== undefined) throw bad(unknown);
  return (target, keyOrContext) => {
    const method: unknown = typeof target === 'function' ? target : target?.[keyOrContext];
    if (typeof method !== 'function') throw bad('@OnOutboxEvent() belongs on a method.');
    const marked = method as Marked;
    marked[marks] = [...(marked[marks] ?? []), { types, options }];
  };
}

/** The marks of an object's methods, inherited ones too, by name of the method. */
export function handlerMarks(prototype: object | null): Map<string, readonly HandlerMark[]> {
  const found = new Map<string, readonly HandlerMark[]>();
  const seen = new Set<string>();
  for (let each = prototype; each !== null && each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(each))) {
      if (seen.has(name)) continue;
      seen.add(name); // A method that overrides a handler is one only if it is decorated itself.
      const list = typeof value === 'function' ? (value as Marked)[marks] : undefined;
      if (list) found.set(name, list);
    }
  }
  return found;
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
