import type { InjectionToken } from '@nestjs/common';
import type { ModuleRef } from '@nestjs/core';
import { PostcommitError } from '../../errors.ts';
import type { Publisher } from '../../publishers/publisher.ts';
import type { DestinationSettings, Destinations } from '../../relay/deliver/destinations/destination-options.ts';
import type { ClientProxyLike } from './client-proxy-publisher.ts';
import { ClientProxyPublisher, ClientProxyReference } from './client-proxy-publisher.ts';

/** A publisher, or where to find it: the class or token of a provider that implements `Publisher`, or `clientProxy(token)`. */
export type PublisherReference = Publisher | InjectionToken | ClientProxyReference;

/** Destinations by name. Progress and outages are kept by that name, so keep it stable. */
export type NestDestinations = Readonly<
  Record<string, PublisherReference | (Omit<DestinationSettings, 'publisher'> & { publisher: PublisherReference })>
>;

/** Looks up the publishers that are providers. All providers must exist by now. */
export function resolveReferences(given: NestDestinations, moduleRef: ModuleRef): Destinations {
  const resolve = (name: string, value: unknown): unknown => {
    if (value instanceof ClientProxyReference) {
      const { client, options } = value;
      const found = isToken(client) ? provided(client, name, moduleRef) : client;
      return new ClientProxyPublisher(found as ClientProxyLike, options);
    }
    return isToken(value) ? provided(value, name, moduleRef) : value;
  };
  const settingsOf = (name: string, value: unknown): unknown => {
    const hasPublisher = typeof value === 'object' && value !== null && 'publisher' in value;
    return hasPublisher ? { ...value, publisher: resolve(name, value.publisher) } : resolve(name, value);
  };
  return Object.fromEntries(
    Object.entries(given).map(([name, value]) => [name, settingsOf(name, value)]),
  ) as Destinations;
}

function isToken(value: unknown): value is InjectionToken {
  return typeof value === 'function' || typeof value === 'string' || typeof value === 'symbol';
}

function provided(token: InjectionToken, destination: string, moduleRef: ModuleRef): unknown {
  try {
    return moduleRef.get(token, { strict: false });
  } catch (cause) {
    const name = typeof token === 'function' ? token.name : String(token);
    const detail = `destinations['${destination}'] is ${name}, which no module of the application provides: add it to the providers of one.`;
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail, { cause });
  }
}
