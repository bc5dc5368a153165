import type { DiscoveryService } from '@nestjs/core';
import { ContextIdFactory, ModuleRef } from '@nestjs/core';
import { PostcommitError } from '../../errors.ts';
import type { Handler, HandlerWithPolicy } from '../../relay/deliver/handlers.ts';
import type { RelayOptions } from '../../relay/options.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { OutboxEventContext } from './event-context.ts';
import {
  allMarks,
  type Declaration,
  declaredHandlers,
  handlerMarks,
  replacedHandlers,
  unmarkedNames,
} from './handler-marks.ts';

type InstanceWrapper = ReturnType<DiscoveryService['getProviders']>[number];
type Named = Record<string, HandlerWithPolicy>;

/** Collects the methods with `@OnOutboxEvent` of all providers and controllers, once all of them exist. */
export function discoverHandlers(discovery: DiscoveryService, logger: Logger): Record<string, Named> {
  const handlers: Record<string, Named> = {};
  const seen = new Set<object>();
  const wrappers = [...discovery.getProviders(), ...discovery.getControllers()].filter(({ isAlias }) => !isAlias);
  for (const wrapper of wrappers) {
    const isPerEvent = isMadePerEvent(wrapper);
    const owner: unknown = isPerEvent ? prototypeOf(wrapper) : wrapper.instance;
    if (typeof owner !== 'object' || owner === null) continue;
    // One object may be a provider under several tokens, and one module may be imported with several options.
    if (seen.has(owner)) continue;
    seen.add(owner);
    const prototype = isPerEvent ? owner : Object.getPrototypeOf(owner);
    if (!isPerEvent) refuseReplaced(owner, prototype);
    for (const [method, marks] of handlerMarks(prototype)) {
      for (const { types, options } of marks) {
        const { name = defaultName(prototype, method), ...policy } = options;
        const handle = isPerEvent
          ? perEvent(wrapper, method)
          : onInstance(owner as Record<string | symbol, Handler>, method);
        for (const type of types) add(handlers, type, name, { ...policy, handle });
      }
    }
  }
  const hidden = hiddenHandlers(wrappers);
  warnOfFactories(wrappers, hidden, logger);
  warnOfReplaced(wrappers, hidden, logger);
  return handlers;
}

/**
 * Refuses a relay that can deliver nothing, as `createRelay` does: the class with the handlers may be missing in `providers`. One that
 * emits the events of schedules has something to do.
 */
export function requireTargets(handlers: object, destinations: object, { schedules = {} }: RelayOptions): void {
  if ([handlers, destinations, schedules].some((each) => Object.keys(each).length > 0)) return;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    'PostcommitModule found no @OnOutboxEvent() method and has no destinations, so every event would fail until its attempts are used up. Is the class with @OnOutboxEvent() in the providers of a module? For a service that only emits, give runRelay: false.',
  );
}

/** Request or transient scope. The `instance` of such a provider is an object whose constructor has not run. */
function isMadePerEvent(wrapper: InstanceWrapper): boolean {
  return wrapper.isTransient || !wrapper.isDependencyTreeStatic();
}

/** Of what Nest will make. What a factory makes is known only if its token is the class. */
function prototypeOf({ isFactory, token, metatype }: InstanceWrapper): object | null {
  return prototypeOfClass(isFactory ? token : metatype);
}

function defaultName(prototype: object, method: string | symbol): string {
  const shown = typeof method === 'symbol' ? method.description : method;
  if (shown) return `${prototype.constructor.name}.${shown}`;
  const detail = `A handler of ${prototype.constructor.name} is a method whose symbol has no description. Give it a name: @OnOutboxEvent(..., { name: '...' }).`;
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}

function add(handlers: Record<string, Named>, type: string, name: string, handler: HandlerWithPolicy): void {
  handlers[type] ??= {};
  const named = handlers[type];
  if (Object.hasOwn(named, name)) {
    throw new PostcommitError(
      'POSTCOMMIT_E_DUPLICATE_HANDLER',
      `It is '${name}', for the event type '${type}'. Give one of the two another name: @OnOutboxEvent('${type}', { name: '...' }).`,
    );
  }
  named[name] = handler;
}

function onInstance(instance: Record<string | symbol, Handler>, method: string | symbol): Handler {
  // The method is looked up for each call, so that a spy of a test counts.
  return (event, call) => instance[method]?.(event.payload, new OutboxEventContext(event, call));
}

/** For a provider of request or transient scope: a new instance for each event. `REQUEST` is the event. */
function perEvent({ host, token }: InstanceWrapper, method: string | symbol): Handler {
  // That of the provider's own module: another module may provide something else under the same token.
  const moduleRef: ModuleRef | undefined = host?.getProviderByKey(ModuleRef).instance;
  return async (event, call) => {
    const contextId = ContextIdFactory.create();
    moduleRef?.registerRequestByContextId(event, contextId);
    const instance = await moduleRef?.resolve(token, contextId, { strict: true });
    return instance[method](event.payload, new OutboxEventContext(event, call));
  };
}

/** A standard decorator is not told the class, so a method that another decorator has replaced is not found. */
function refuseReplaced(instance: object, prototype: object): void {
  const [replaced] = replacedHandlers(instance);
  if (replaced === undefined) return;
  const detail = `The handler ${prototype.constructor.name}.${replaced.shown} would not be called: another decorator has replaced the method. ${advice}.`;
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}

const advice =
  'Write @OnOutboxEvent() above the other decorators of the method, or define Symbol.metadata before the class';

/** What no provider is known to have. An application may load a class with handlers and not use it, so it refuses nothing by itself. */
function hiddenHandlers(wrappers: readonly InstanceWrapper[]): Declaration[] {
  const hidden = new Map(declaredHandlers);
  for (const wrapper of wrappers) {
    const made = isMadePerEvent(wrapper) ? prototypeOf(wrapper) : prototypeOfInstance(wrapper.instance);
    // The token too: a test may have replaced the class.
    for (const prototype of [made, prototypeOfClass(wrapper.token)]) {
      for (const mark of allMarks(prototype)) hidden.delete(mark);
    }
  }
  return [...hidden.values()];
}

/**
 * A factory of request scope may make an object with handlers, and only a call would tell. Where handlers were declared that no
 * provider is known to have, they may be of such an object. A warning and no refusal: many packages have such factories.
 */
function warnOfFactories(wrappers: readonly InstanceWrapper[], hidden: Declaration[], logger: Logger): void {
  const factories = wrappers.filter(isOpaque).map(({ token }) => nameOf(token));
  if (factories.length === 0 || hidden.length === 0) return;
  logger.warn(
    { handlers: shownOnce(hidden), factories },
    'no provider is known to have these handlers, and they are not called; if one of these factories makes it, use its class as token',
  );
}

/** As `refuseReplaced`, for providers that have no instance yet. A warning: another class may have a method of that name. */
function warnOfReplaced(wrappers: readonly InstanceWrapper[], hidden: Declaration[], logger: Logger): void {
  const suspects = hidden.filter(({ isOnlyOnMethod }) => isOnlyOnMethod);
  const members = wrappers
    .filter(isMadePerEvent)
    .map((wrapper) => [wrapper, unmarkedNames(prototypeOf(wrapper))] as const);
  const replaced = suspects.filter(({ name }) => members.some(([, names]) => names.has(name)));
  if (replaced.length === 0) return;
  const found = members.filter(([, names]) => replaced.some(({ name }) => names.has(name)));
  logger.warn(
    { handlers: shownOnce(replaced), providers: found.map(([{ token }]) => nameOf(token)) },
    `these handlers are not called if they belong to these providers: another decorator has replaced the method; ${advice}`,
  );
}

function shownOnce(handlers: readonly Declaration[]): string[] {
  return [...new Set(handlers.map(({ shown }) => shown))];
}

/** Whether only a call tells what it makes. */
function isOpaque(wrapper: InstanceWrapper): boolean {
  const isOfNest = wrapper.host?.name === 'InternalCoreModule'; // REQUEST and INQUIRER.
  return wrapper.isFactory && !isOfNest && isMadePerEvent(wrapper) && handlerMarks(prototypeOf(wrapper)).size === 0;
}

function prototypeOfInstance(instance: unknown): object | null {
  return typeof instance === 'object' && instance !== null ? Object.getPrototypeOf(instance) : null;
}

function prototypeOfClass(given: unknown): object | null {
  return typeof given === 'function' ? (given.prototype ?? null) : null;
}

function nameOf(token: unknown): string {
  return typeof token === 'function' ? token.name : String(token);
}
