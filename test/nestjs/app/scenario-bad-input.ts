import { Inject, Injectable, Module, Scope, type Type } from '@nestjs/common';
import { NestFactory, REQUEST } from '@nestjs/core';
import { Pool, type PoolClient } from 'pg';
import {
  OnOutboxEvent,
  Outbox,
  OutboxEvent,
  PostcommitModule,
  type PostcommitModuleAsyncOptions,
  type PostcommitOptionsFactory,
} from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule } from './database.js';
import { Journal } from './journal.js';

class Untyped extends OutboxEvent {}

const journal = new Journal();

async function refusal(name: string, work: () => unknown): Promise<void> {
  try {
    await work();
    journal.add({ what: name, code: 'none' });
  } catch (error) {
    journal.add({ what: name, code: (error as { code?: string }).code, message: (error as Error).message });
  }
}

const options = { logger: false, abortOnError: false } as const;

function module(destinations: object, providers: Type[], others: object = {}): Type {
  @Module({
    imports: [
      DatabaseModule,
      PostcommitModule.forRootAsync({
        inject: [Pool],
        useFactory: (pool: Pool) => ({ db: fromPg(pool), destinations: { ...destinations }, ...others }),
      }),
    ],
    providers,
  })
  class AppModule {}
  return AppModule;
}

function handlers(): Type {
  @Injectable()
  class Mails {
    @OnOutboxEvent('order.created')
    send() {}
  }
  return Mails;
}

class NotProvided {}

/** A client for each tenant, as multi-tenant applications have it. */
@Injectable({ scope: Scope.REQUEST })
class TenantPool {
  constructor(
    @Inject(REQUEST) readonly request: unknown,
    readonly pool: Pool,
  ) {}
}

@Module({ providers: [TenantPool], exports: [TenantPool] })
class TenantModule {}

@Injectable()
class TenantOptions implements PostcommitOptionsFactory {
  constructor(private readonly tenant: TenantPool) {}

  createPostcommitOptions() {
    return { db: fromPg(this.tenant.pool) };
  }
}

function tenantModule(options: Partial<PostcommitModuleAsyncOptions>): Type {
  @Module({ imports: [DatabaseModule, PostcommitModule.forRootAsync({ imports: [TenantModule], ...options })] })
  class AppModule {}
  return AppModule;
}

export async function badInput(): Promise<void> {
  await refusal('decorator', () => OnOutboxEvent(Untyped as never));
  await refusal('two handlers with one name', () =>
    NestFactory.createApplicationContext(module({}, [handlers(), handlers()]), options),
  );
  await refusal('publisher that is not provided', () =>
    NestFactory.createApplicationContext(module({ audit: NotProvided }, []), options),
  );
  const ofTenant = {
    inject: [TenantPool],
    useFactory: ({ pool }: TenantPool) => ({ db: fromPg(pool) }),
  };
  await refusal('options of a request', () => NestFactory.createApplicationContext(tenantModule(ofTenant), options));
  await refusal('options of a request, from a class', () =>
    NestFactory.createApplicationContext(tenantModule({ useClass: TenantOptions }), options),
  );
  await refusal('no handlers and no destinations', () => NestFactory.createApplicationContext(module({}, []), options));
  const pool = new Pool({ connectionString: undefined });
  await refusal('pool without a connection string', () =>
    NestFactory.createApplicationContext(module({}, [handlers()], { db: fromPg(pool) }), options),
  );
  await refusal('schedules alone', async () => {
    const schedules = {
      nightly: { cron: '0 3 * * *', event: { type: 'night.fell', aggregate: ['day', '1'], payload: {} } },
    };
    const app = await NestFactory.createApplicationContext(module({}, [], { relay: { schedules } }), options);
    await app.close();
  });
  const app = await NestFactory.createApplicationContext(module({}, [], { runRelay: false }), options);
  const outbox: Outbox<PoolClient> = app.get(Outbox);
  await refusal('event class without a type', () => outbox.transaction((_tx, emit) => emit(new Untyped() as never)));
  await refusal('pool', () => outbox.emit(app.get(Pool) as never, { type: 'a', aggregate: ['a', '1'], payload: 1 }));
  await app.close();
  // A second copy of the package, as a package of the application may have it.
  const copy = process.env.SECOND_COPY ?? '';
  const second = (await import(copy)) as { Outbox: Type };
  class NeedsOther {}
  Injectable()(NeedsOther);
  Reflect.defineMetadata('design:paramtypes', [second.Outbox], NeedsOther);
  await refusal('two copies', () => NestFactory.createApplicationContext(module({}, [NeedsOther]), options));
}
