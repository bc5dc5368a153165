import type { InjectionToken, ModuleMetadata, Type } from '@nestjs/common';
import type { PrismaRoot } from '../../adapters/prisma.ts';
import { fromPrisma } from '../../adapters/prisma.ts';
import type { EventCatalogue } from '../../catalogue/catalogue.ts';
import type { ConnectionOptions } from '../../database/connection-options.ts';
import type { OutboxDatabase } from '../../emit/outbox-database.ts';
import type { OutboxOptions } from '../../emit/outbox-options.ts';
import { PostcommitError } from '../../errors.ts';
import type { RouteFunction } from '../../relay/deliver/router.ts';
import type { RelayOptions } from '../../relay/options.ts';
import { unknownOption } from '../../suggest.ts';
import type { NestDestinations } from './destinations.ts';
import type { NestarcOptions } from './nestarc-options.ts';
import { fromNestarcOptions } from './nestarc-options.ts';

const ofModule = [
  'connectionString',
  'connection',
  'schema',
  'events',
  'handlers',
  'destinations',
  'route',
] as const satisfies readonly (keyof RelayOptions)[];

/** Options of the relay beside those of the module. Handlers are methods with `@OnOutboxEvent`. */
export type NestRelayOptions = Omit<RelayOptions, (typeof ofModule)[number]>;

/**
 * Options of `PostcommitModule`. `connectionString` and `connection` are for the relay; they can be left out where `db` tells how its
 * client connects: see docs/frameworks/nestjs.md.
 */
// biome-ignore lint/suspicious/noExplicitAny: the transaction type of any client.
export interface PostcommitModuleOptions<Tx = any>
  extends Omit<OutboxOptions<Tx, never>, 'db' | 'events'>,
    ConnectionOptions,
    NestarcOptions {
  /** The database, through the client you use: `fromPg(pool)`, `fromPrisma(prisma)`, ... Required, unless `prisma` is given. */
  // biome-ignore lint/suspicious/noExplicitAny: the batch statements of any client.
  db?: OutboxDatabase<Tx, any>;
  /**
   * A PrismaClient instead of `db`, as in `@nestarc/outbox`, whose defaults apply then: see {@link NestarcOptions}. With `forRoot` it may
   * be the class of a provider that a global module exports.
   */
  prisma?: PrismaRoot | Type<PrismaRoot>;
  /**
   * The event types of the service, with their schemas: what `defineEvents` returns. `@nestarc/outbox` has a list of event classes
   * here, which is accepted and not needed: handlers say which events they take.
   */
  events?: EventCatalogue | readonly unknown[];
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

const outboxNames = ['payloadBytesMax', 'queueOf', 'serialise', 'notify', 'metrics'] as const;
const nestarcNames = ['prisma', 'polling', 'retry', 'stuckThreshold'] as const;
const optionNames: readonly string[] = [
  'db',
  'prisma',
  'schema',
  ...outboxNames,
  'polling',
  'retry',
  'stuckThreshold',
  'events',
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
  outbox: OutboxOptions<any, any>;
  runRelay: boolean;
  /** Without handlers and destinations, which are known when all providers exist. */
  relay: RelayOptions;
  destinations: NestDestinations;
}

/** Fills in what the module decides, once. The outbox and the relay check their own options. */
export function resolveModuleOptions(given: PostcommitModuleOptions): ResolvedModuleOptions {
  if (typeof given !== 'object' || given === null) throw bad('PostcommitModule takes an object of options.');
  const unknown = unknownOption(given, optionNames, 'PostcommitModule');
  if (unknown !== undefined) throw bad(unknown);
  checkRelayNames(given.relay ?? {});
  const { schema, route, destinations = {}, polling } = given;
  const db = databaseOf(given);
  const catalogue = Array.isArray(given.events) ? undefined : (given.events as EventCatalogue | undefined);
  const isNestarc = catalogue !== given.events || nestarcNames.some((name) => given[name] !== undefined);
  return {
    outbox: {
      db,
      ...(schema !== undefined && { schema }),
      ...(catalogue !== undefined && { events: catalogue }),
      ...picked(given, outboxNames),
    },
    runRelay: given.runRelay ?? polling?.enabled ?? true,
    relay: {
      ...(isNestarc ? fromNestarcOptions(given) : {}),
      ...given.relay,
      ...connectionOf(given, db),
      ...(schema !== undefined && { schema }),
      ...(route !== undefined && { route }),
      ...(catalogue !== undefined && { events: catalogue }),
    },
    destinations,
  };
}

/** Refuses what the module decides for the relay: it would be replaced without a word, or differ from what the outbox has. */
function checkRelayNames(relay: object): void {
  const name = ofModule.find((each) => (relay as Record<string, unknown>)[each] !== undefined);
  if (name === 'handlers') {
    throw bad(
      'PostcommitModule takes no relay: { handlers }. A handler is a method of a provider with @OnOutboxEvent().',
    );
  }
  if (name === undefined) return;
  throw bad(`${name} is an option of PostcommitModule itself, not of relay: write { db, ${name}, relay: { ... } }.`);
}

// biome-ignore lint/suspicious/noExplicitAny: the transaction type of any client.
type AnyDatabase = OutboxDatabase<any, any>;

function databaseOf({ db, prisma }: PostcommitModuleOptions): AnyDatabase {
  if (db !== undefined && prisma !== undefined) throw bad('PostcommitModule takes db or prisma, not both.');
  if (db !== undefined) return db;
  if (prisma === undefined) {
    throw bad('PostcommitModule needs db, e.g. { db: fromPg(pool) } or { db: fromPrisma(prisma) }.');
  }
  if (typeof prisma === 'function') {
    throw bad(
      'The option prisma is a class, which only forRoot() resolves. With forRootAsync(), inject it and pass the instance.',
    );
  }
  return fromPrisma(prisma);
}

function connectionOf(given: PostcommitModuleOptions, db: AnyDatabase): ConnectionOptions {
  const { connectionString, connection } = given;
  if (connectionString !== undefined || connection !== undefined) return { connectionString, connection };
  return db.connection?.() ?? {};
}

/** For a process that runs a relay: without one, and in a test that replaces the relay, no connection is needed. */
export function requireConnection({ connectionString, connection }: ConnectionOptions): void {
  if (connectionString !== undefined || connection !== undefined) return;
  throw bad(
    'The relay does not know how to connect, because `db` does not expose its connection. fromPg() exposes it if the pool was created with connectionString, or with host and database: is its environment variable set? For any other client, pass connectionString to PostcommitModule, or connection with host and database.',
  );
}

function picked<T extends object, Name extends keyof T>(options: T, names: readonly Name[]): Partial<Pick<T, Name>> {
  const given = names.filter((name) => options[name] !== undefined);
  return Object.fromEntries(given.map((name) => [name, options[name]])) as Partial<Pick<T, Name>>;
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
