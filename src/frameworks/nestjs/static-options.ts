import type { InjectionToken } from '@nestjs/common';
import { Scope } from '@nestjs/common';
import type { DiscoveryService } from '@nestjs/core';
import { PostcommitError } from '../../errors.ts';

type InstanceWrapper = ReturnType<DiscoveryService['getProviders']>[number];

/**
 * Refuses options that Nest makes for each request: it would then make outbox and relay for each request too, and call none of their
 * lifecycle hooks, so that no relay would run. To be called when all providers exist: before, Nest does not know all dependencies.
 */
export function requireStaticOptions(discovery: DiscoveryService, options: InjectionToken): void {
  const wrapper = discovery.getProviders().find((each) => each.token === options && !each.isDependencyTreeStatic());
  if (wrapper === undefined) return;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    `The options of PostcommitModule depend on a request-scoped provider (${requestScoped(wrapper).join(' > ')}), so no relay can run: there is one for the application, and none for a request. Inject providers of the default scope into the options, such as the pool or the client.`,
  );
}

/** The names on the way from the options to the provider that has request scope itself. */
function requestScoped(options: InstanceWrapper): string[] {
  const path: string[] = [];
  const seen = new Set([options]);
  let next = perRequest(options);
  while (next !== undefined && !seen.has(next)) {
    seen.add(next);
    path.push(String(next.name));
    next = next.scope === Scope.REQUEST ? undefined : perRequest(next);
  }
  return path;
}

function perRequest(wrapper: InstanceWrapper): InstanceWrapper | undefined {
  return wrapper.getCtorMetadata()?.find((dependency) => dependency?.isDependencyTreeStatic() === false);
}
