import type { DiscoveryService, ModuleRef } from '@nestjs/core';
import { ContextIdFactory } from '@nestjs/core';
import { PostcommitError } from '../../errors.ts';
import type { Handler, HandlerWithPolicy } from '../../relay/deliver/handlers.ts';
import { OutboxEventContext } from './event-context.ts';
import { handlerMarks } from './on-outbox-event.ts';

type InstanceWrapper = ReturnType<DiscoveryService['getProviders']>[number];
type Named = Record<string, HandlerWithPolicy>;

/** Collects the methods with `@OnOutboxEvent` of all providers and controllers, once all of them exist. */
export function discoverHandlers(discovery: DiscoveryService, moduleRef: ModuleRef): Record<string, Named> {
  const handlers: Record<string, Named> = {};
  const seen = new Set<unknown>();
  for (const wrapper of [...discovery.getProviders(), ...discovery.getControllers()]) {
    const owner = wrapper.isDependencyTreeStatic() ? wrapper.instance : wrapper.metatype?.prototype;
    if (wrapper.isAlias || typeof owner !== 'object' || owner === null) continue;
    // One object may be a provider under several tokens, and one module may be imported with several options.
    if (seen.has(owner)) continue;
    seen.add(owner);
    const prototype = wrapper.isDependencyTreeStatic() ? Object.getPrototypeOf(owner) : owner;
    for (const [method, marks] of handlerMarks(prototype)) {
      for (const { types, options } of marks) {
        const { name = `${prototype.constructor.name}.${method}`, ...policy } = options;
        const handle = wrapper.isDependencyTreeStatic()
          ? onInstance(owner, method)
          : perEvent(wrapper, method, moduleRef);
        for (const type of types) add(handlers, type, name, { ...policy, handle });
      }
    }
  }
  return handlers;
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

function onInstance(instance: Record<string, Handler>, method: string): Handler {
  // The method is looked up for each call, so that a spy of a test counts.
  return (event, call) => instance[method]?.(event.payload, new OutboxEventContext(event, call));
}

/** For a provider of request or transient scope: a new instance for each event. `REQUEST` is the event. */
function perEvent(wrapper: InstanceWrapper, method: string, moduleRef: ModuleRef): Handler {
  return async (event, call) => {
    const contextId = ContextIdFactory.create();
    moduleRef.registerRequestByContextId(event, contextId);
    const instance = await moduleRef.resolve(wrapper.token, contextId, { strict: false });
    return instance[method](event.payload, new OutboxEventContext(event, call));
  };
}
