import { PostcommitError } from '../../errors.ts';
import { unknownOption } from '../../suggest.ts';
import {
  declaredHandlers,
  type HandlerMark,
  markByName,
  markInstance,
  markMethod,
  type OnOutboxEventOptions,
} from './handler-marks.ts';
import type { EventClass } from './outbox-event.ts';
import { eventTypeOf } from './outbox-event.ts';

/** Fits methods with both kinds of decorators, `experimentalDecorators` and the standard ones. */
export type HandlerDecorator = (
  // biome-ignore lint/suspicious/noExplicitAny: the prototype, or the method itself.
  target: any,
  // biome-ignore lint/suspicious/noExplicitAny: the name of the method, or the context of a standard decorator.
  keyOrContext: any,
  // biome-ignore lint/suspicious/noExplicitAny: only the first kind has it.
  descriptor?: any,
) => void;

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
  return (target, keyOrContext, descriptor) => {
    const mark = { types, options };
    // A standard decorator gets the method and a context, the other kind a prototype, or the class of a static method, and a name.
    const isStandard = typeof keyOrContext === 'object' && keyOrContext !== null;
    if (isStandard) declareStandard(mark, target, keyOrContext);
    else declare(mark, target, keyOrContext, descriptor);
  };
}

/** What a decorator outside of this one puts in the place of the method is found by prototype and name. */
function declare(
  mark: HandlerMark,
  target: unknown,
  name: string | symbol,
  descriptor: PropertyDescriptor | undefined,
): void {
  const owner = target as Record<string | symbol, unknown> | null | undefined;
  // A decorator inside of this one has put its function into the descriptor, and nowhere else yet.
  const method: unknown = descriptor?.value ?? owner?.[name];
  if (!owner || typeof method !== 'function') throw notMethod();
  if (typeof target === 'function') throw notOfInstance();
  // An inherited method stays as it is: the base class is not decorated.
  if (Object.hasOwn(owner, name)) markMethod(method, mark);
  markByName(owner, name, mark);
  const shown = `${owner.constructor?.name ?? ''}.${String(name)}`;
  declaredHandlers.set(mark, { name, shown, isOnlyOnMethod: false });
}

/** It is not given the class. What a decorator outside of this one returns is found by the metadata of the class, if there is any. */
function declareStandard(mark: HandlerMark, method: unknown, context: Partial<ClassMethodDecoratorContext>): void {
  const { name = '', metadata } = context;
  if (typeof method !== 'function') throw notMethod();
  if (context.static || context.private) throw notOfInstance();
  markMethod(method, mark);
  if (metadata) markByName(metadata, name, mark);
  context.addInitializer?.(function (this: unknown) {
    markInstance(this as object, mark);
  });
  declaredHandlers.set(mark, { name, shown: String(name), isOnlyOnMethod: !metadata });
}

function notMethod(): PostcommitError {
  return bad('@OnOutboxEvent() belongs on a method.');
}

/** The relay finds handlers by the prototype of a provider. */
function notOfInstance(): PostcommitError {
  return bad('@OnOutboxEvent() belongs on a method of a provider, which is neither static nor #private.');
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
