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

/** All methods that the decorator was applied to in this process, with what to call them in a log line. */
export const declaredHandlers = new Map<unknown, string>();

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
    const { method, name } = decoratedMethod(target, keyOrContext);
    method[marks] = [...(method[marks] ?? []), { types, options }];
    declaredHandlers.set(method, name);
  };
}

function decoratedMethod(target: unknown, keyOrContext: unknown): { method: Marked; name: string } {
  // A standard decorator gets the method and a context, the other kind a prototype, or the class of a static method, and a name.
  const isStandard = typeof keyOrContext === 'object' && keyOrContext !== null;
  const context: Partial<ClassMethodDecoratorContext> = isStandard ? keyOrContext : { name: keyOrContext as string };
  const { name } = context;
  const owner = target as Record<PropertyKey, unknown> | null | undefined;
  const method = isStandard ? target : owner?.[name as PropertyKey];
  if (typeof method !== 'function') throw bad('@OnOutboxEvent() belongs on a method.');
  // The relay finds handlers by the prototype of a provider, where these two are not.
  if (context.static || context.private || (!isStandard && typeof target === 'function')) {
    throw bad('@OnOutboxEvent() belongs on a method of a provider, which is neither static nor #private.');
  }
  const className = isStandard ? '' : `${owner?.constructor?.name ?? ''}.`;
  return { method: method as Marked, name: `${className}${String(name)}` };
}

/** The marks of an object's methods, inherited ones too, by name of the method. */
export function handlerMarks(prototype: object | null): Map<string | symbol, readonly HandlerMark[]> {
  const found = new Map<string | symbol, readonly HandlerMark[]>();
  const seen = new Set<string | symbol>();
  for (const [name, value] of methodsOf(prototype)) {
    if (seen.has(name)) continue;
    seen.add(name); // A method that overrides a handler is one only if it is decorated itself.
    const list = typeof value === 'function' ? (value as Marked)[marks] : undefined;
    if (list) found.set(name, list);
  }
  return found;
}

/** What an object has and inherits, without calling getters; that of subclasses first. */
export function* methodsOf(prototype: object | null): Generator<[name: string | symbol, value: unknown]> {
  for (let each = prototype; each !== null && each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    for (const name of Reflect.ownKeys(each)) yield [name, Object.getOwnPropertyDescriptor(each, name)?.value];
  }
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
