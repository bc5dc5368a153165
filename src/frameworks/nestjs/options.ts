import type { InjectionToken, ModuleMetadata, Type } from '@nestjs/common';
import type { ConnectionOptions } from '../../database/connection-options.ts';
import type { OutboxDatabase } from '../../emit/outbox-database.ts';
import type { OutboxOptions } from '../../emit/outbox-options.ts';
import { PostcommitError } from '../../errors.ts';
import type { RouteFunction } from '../../relay/deliver/router.ts';
import type { RelayOptions } from '../../relay/options.ts';
import { didYouMean } from '../../suggest.ts';
import type { NestDestinations } from './destinations.ts';
import type { NestarcOptions } from './nestarc-options.ts';
import { fromNestarcOptions } from './nestarc-options.ts';

/** Options of the relay beside those of the module. Handlers are methods with `@OnOutboxEvent`. */
export type NestRelayOptions = Omit<
  RelayOptions,
  'connectionString' | 'connection' | 'schema' | 'handlers' | 'destinations' | 'route'
>;

/**
 * Options of `PostcommitModule`. `connectionString` and `connection` are for the relay; they can be left out where `db` tells how its
 * client connects: see docs/frameworks/nestjs.md.
 */
// biome-ignore lint/suspicious/noExplicitAny: the transaction type of any client.
export interface PostcommitModuleOptions<Tx = any>
  extends Omit<OutboxOptions<Tx>, 'db'>,
    ConnectionOptions,
    NestarcOptions {
  /** The database, through the client you use: `fromPg(pool)`, `fromPrisma(prisma)`, ... */
  db: OutboxDatabase<Tx>;
  /** Run a relay in this process. `false`: only emit; relays of other processes deliver. Default `true`. */
  runRelay?: boolean;
  /** Options of the relay. Default: those of `createRelay`, and a logger that writes to Nest's. */
  relay?: NestRelayOptions;
  /** Brokers and endpoints by name: publishers, classes or tokens of providers, `clientProxy(token)`. */
  destinations?: NestDestinations;
  /** Where an event goes. Default: to every destination, with the event's type as topic. */
  route?: RouteFunction;
}

/** A provider that makes the options, for `useClass` and `useExisting`. */
export interface PostcommitOptionsFactory {
  createPostcommitOptions?(): PostcommitModuleOptions | Promise<PostcommitModuleOptions>;
  /** Another name of it, that of `@nestarc/outbox`. */
  createOutboxOptions?(): PostcommitModuleOptions | Promise<PostcommitModuleOptions>;
}

export interface PostcommitModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  // biome-ignore lint/suspicious/noExplicitAny: whatever is injected.
  useFactory?: (...args: any[]) => PostcommitModuleOptions | Promise<PostcommitModuleOptions>;
  /** What `useFactory` is called with. */
  inject?: (InjectionToken | { token: InjectionToken; optional: boolean })[];
  /** A class that makes the options. Nest creates it. */
  useClass?: Type<PostcommitOptionsFactory>;
  /** The same, of a class that one of `imports` provides. */
  useExisting?: Type<PostcommitOptionsFactory>;
  /** Make the providers available to all modules. Default `true`. */
  isGlobal?: boolean;
}

const outboxNames = ['catalogue', 'payloadBytesMax', 'queueOf', 'serialise', 'notify'] as const;
const nestarcNames = ['polling', 'retry', 'stuckThreshold', 'events'] as const;
const optionNames: readonly string[] = [
  'db',
  'schema',
  ...outboxNames,
  ...nestarcNames,
  'connectionString',
  'connection',
  'runRelay',
  'relay',
  'destinations',
  'route',
  'isGlobal',
];

export interface ResolvedModuleOptions {
  // biome-ignore lint/suspicious/noExplicitAny: the transaction type of any client.
  outbox: OutboxOptions<any>;
  runRelay: boolean;
  /** Without handlers and destinations, which are known when all providers exist. */
  relay: RelayOptions;
  destinations: NestDestinations;
}

/** Fills in what the module decides, once. The outbox and the relay check their own options. */
export function resolveModuleOptions(given: PostcommitModuleOptions): ResolvedModuleOptions {
  if (typeof given !== 'object' || given === null) throw bad('PostcommitModule takes an object of options.');
  const unknown = Object.keys(given).find((name) => !optionNames.includes(name));
  if (unknown !== undefined) {
    const suggestion = didYouMean(unknown, optionNames);
    throw bad(`PostcommitModule has no option ${unknown}.${suggestion} Known options: ${optionNames.join(', ')}.`);
  }
  const { db, schema, route, destinations = {}, polling } = given;
  const isNestarc = nestarcNames.some((name) => given[name] !== undefined);
  return {
    outbox: { db, ...(schema !== undefined && { schema }), ...picked(given, outboxNames) },
    runRelay: given.runRelay ?? polling?.enabled ?? true,
    relay: {
      ...(isNestarc ? fromNestarcOptions(given) : {}),
      ...given.relay,
      ...connectionOf(given),
      ...(schema !== undefined && { schema }),
      ...(route !== undefined && { route }),
    },
    destinations,
  };
}

function connectionOf(given: PostcommitModuleOptions): ConnectionOptions {
  const { connectionString, connection } = given;
  if (connectionString !== undefined || connection !== undefined) return { connectionString, connection };
  return given.db?.connection?.() ?? {};
}

function picked<T extends object, Name extends keyof T>(options: T, names: readonly Name[]): Partial<Pick<T, Name>> {
  const given = names.filter((name) => options[name] !== undefined);
  return Object.fromEntries(given.map((name) => [name, options[name]])) as Partial<Pick<T, Name>>;
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
