import type { DynamicModule, FactoryProvider, InjectionToken, ModuleMetadata, Provider } from '@nestjs/common';
import { Module } from '@nestjs/common';
import { DiscoveryModule, DiscoveryService, ModuleRef } from '@nestjs/core';
import type { PrismaRoot } from '../../adapters/prisma.ts';
import { OutboxAdmin } from '../../admin/admin.ts';
import type { OutboxDatabase } from '../../emit/outbox-database.ts';
import { PostcommitError } from '../../errors.ts';
import { Inbox } from '../../inbox/inbox.ts';
import { Relay } from '../../relay/relay.ts';
import { silentLogger } from '../../telemetry/logging.ts';
import { requireOneCopy } from './copies.ts';
import { resolveReferences } from './destinations.ts';
import { discoverHandlers, requireTargets } from './handler-discovery.ts';
import { PostcommitHealthIndicator } from './health-indicator.ts';
import { FirstHooks, hookModules, LastHooks } from './hook-order.ts';
import { nestLogger } from './nest-logger.ts';
import type {
  PostcommitModuleAsyncOptions,
  PostcommitModuleOptions,
  PostcommitOptionsFactory,
  ResolvedModuleOptions,
} from './options.ts';
import { requireConnection, resolveModuleOptions } from './options.ts';
import { Outbox } from './outbox.ts';
import { attachRunner, RelayRunner } from './relay-runner.ts';
import { requireStaticOptions } from './static-options.ts';

/** The token of the options, as they were given. A test may override it. */
export const POSTCOMMIT_OPTIONS = Symbol.for('postcommit.nestjs.options');

const resolvedOptions = Symbol('postcommit.nestjs.resolved-options');
const attached = Symbol('postcommit.nestjs.attached');
const checked = Symbol('postcommit.nestjs.checked');

const provide = (token: InjectionToken, inject: InjectionToken[], useFactory: FactoryProvider['useFactory']) => ({
  provide: token,
  inject,
  useFactory,
});

/** All but the options. */
const providers: readonly Provider[] = [
  provide(resolvedOptions, [POSTCOMMIT_OPTIONS], resolveModuleOptions),
  provide(Outbox, [resolvedOptions], ({ outbox }: ResolvedModuleOptions) => new Outbox(outbox)),
  provide(
    Inbox,
    [resolvedOptions],
    ({ outbox: { db, schema, metrics } }: ResolvedModuleOptions) =>
      new Inbox<unknown>({
        db: db as OutboxDatabase<unknown>,
        ...(schema !== undefined && { schema }),
        ...(metrics && { metrics }),
      }),
  ),
  provide(OutboxAdmin, [Outbox], (outbox: Outbox) => outbox.admin),
  provide(
    Relay,
    [resolvedOptions, DiscoveryService, ModuleRef],
    (
      { outbox: { metrics }, runRelay, relay, destinations }: ResolvedModuleOptions,
      discovery: DiscoveryService,
      moduleRef: ModuleRef,
    ) =>
      new Relay(() => {
        requireConnection(relay);
        const { logger = nestLogger() } = relay;
        const handlers = discoverHandlers(discovery, logger || silentLogger);
        if (runRelay) requireTargets(handlers, destinations, relay);
        return {
          ...(metrics && { metrics }),
          ...relay,
          logger,
          handlers,
          destinations: resolveReferences(destinations, moduleRef),
        };
      }),
  ),
  provide(
    RelayRunner,
    [Relay, resolvedOptions],
    (relay: Relay, { runRelay }: ResolvedModuleOptions) => new RelayRunner(relay, runRelay),
  ),
  provide(attached, [RelayRunner, FirstHooks, LastHooks], attachRunner),
  // Nothing that depends on the options: Nest would not make it before the first request.
  provide(checked, [FirstHooks, DiscoveryService], (first: FirstHooks, discovery: DiscoveryService) => {
    first.bootstrap.push(async () => requireStaticOptions(discovery, POSTCOMMIT_OPTIONS));
    return true;
  }),
  provide(
    PostcommitHealthIndicator,
    [Relay, OutboxAdmin, RelayRunner],
    (relay: Relay, admin: OutboxAdmin, runner: RelayRunner) => new PostcommitHealthIndicator(relay, admin, runner),
  ),
];

const exported = [Outbox, Inbox, OutboxAdmin, Relay, RelayRunner, PostcommitHealthIndicator, POSTCOMMIT_OPTIONS];

/**
 * The outbox and its relay in a Nest application. Exports `Outbox`, `Inbox`, `OutboxAdmin`, `Relay` and `PostcommitHealthIndicator` to all
 * modules. The relay starts when the application has started. It stops first when the application closes; for that, call
 * `app.enableShutdownHooks()`.
 *
 * @example
 * import { PostcommitModule } from 'postcommit/nestjs';
 *
 * PostcommitModule.forRoot({ db: fromPg(pool), relay: { inFlightMax: 20 } });
 */
// biome-ignore lint/complexity/noStaticOnlyClass: a Nest module is a class.
export class PostcommitModule {
  /** With options that are known when the module is declared. */
  static forRoot(options: PostcommitModuleOptions & { isGlobal?: boolean }): DynamicModule {
    return dynamicModule(options?.isGlobal, [], [givenOptions(options)]);
  }

  /**
   * With options that other providers make: a configuration, a database client.
   *
   * @example
   * import pg from 'pg';
   * import { PostcommitModule } from 'postcommit/nestjs';
   *
   * PostcommitModule.forRootAsync({ inject: ['POOL'], useFactory: (pool: pg.Pool) => ({ db: fromPg(pool) }) });
   */
  static forRootAsync(options: PostcommitModuleAsyncOptions): DynamicModule {
    return dynamicModule(options?.isGlobal, options?.imports ?? [], optionsProviders(options));
  }
}

Module({})(PostcommitModule);

function dynamicModule(
  isGlobal: boolean | undefined,
  imports: NonNullable<ModuleMetadata['imports']>,
  ofOptions: readonly Provider[],
): DynamicModule {
  return {
    module: PostcommitModule,
    global: isGlobal ?? true,
    imports: [...imports, DiscoveryModule, ...hookModules],
    // Nest reads this when it scans the modules. By then the code of the application is loaded, and nothing is injected yet.
    get providers() {
      requireOneCopy();
      return [...ofOptions, ...providers];
    },
    exports: exported,
  };
}

/** With the instance of `prisma`, where that is the class of a provider. */
function givenOptions(options: PostcommitModuleOptions): Provider {
  const { prisma } = options ?? {};
  if (typeof prisma !== 'function') return { provide: POSTCOMMIT_OPTIONS, useValue: options };
  return provide(POSTCOMMIT_OPTIONS, [prisma], (instance: PrismaRoot) => ({ ...options, prisma: instance }));
}

function optionsProviders(options: PostcommitModuleAsyncOptions): Provider[] {
  const { useFactory, inject = [], useClass, useExisting } = options ?? {};
  if (useFactory) return [{ provide: POSTCOMMIT_OPTIONS, useFactory, inject }];
  const factory = useExisting ?? useClass;
  if (factory === undefined) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      'PostcommitModule.forRootAsync() needs useFactory, useClass or useExisting.',
    );
  }
  return [
    ...(useExisting ? [] : [factory]),
    provide(POSTCOMMIT_OPTIONS, [factory], (made: PostcommitOptionsFactory) => {
      const create = made.createPostcommitOptions ?? made.createOutboxOptions;
      if (typeof create === 'function') return create.call(made);
      throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${factory.name} has no method createPostcommitOptions().`);
    }),
  ];
}
