import { Inject, Injectable, Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Pool, type PoolClient } from 'pg';
import { Outbox, PostcommitModule, type PostcommitOptionsFactory, Relay } from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule } from './database.js';
import { Journal } from './journal.js';
import { OtherHandler } from './other-handler.js';

@Injectable()
class Options implements PostcommitOptionsFactory {
  constructor(@Inject(Pool) private readonly pool: Pool) {}

  // The relay has names and defaults of @nestarc/outbox: no handler means FAILED at once.
  createPostcommitOptions() {
    return { db: fromPg(this.pool), polling: { interval: 200 }, retry: { maxRetries: 3 } };
  }
}

@Injectable()
class NestarcOptions implements PostcommitOptionsFactory {
  constructor(@Inject(Pool) private readonly pool: Pool) {}

  createOutboxOptions() {
    return { db: fromPg(this.pool), polling: { enabled: false } };
  }
}

@Module({ providers: [NestarcOptions], exports: [NestarcOptions] })
class OptionsModule {}

@Injectable()
class NeedsOutbox {
  constructor(readonly outbox: Outbox) {}
}

/** A module that does not import PostcommitModule itself. */
@Module({ providers: [NeedsOutbox] })
class FeatureModule {}

async function boot(imports: Parameters<typeof Module>[0]['imports'], isRootOnly = false) {
  @Module({
    imports: [DatabaseModule, ...(imports ?? []), ...(isRootOnly ? [] : [FeatureModule])],
    providers: [OtherHandler],
  })
  class AppModule {}
  return NestFactory.createApplicationContext(AppModule as Type, { logger: false, abortOnError: false });
}

export async function asyncOptions(): Promise<void> {
  const ofClass = await boot([PostcommitModule.forRootAsync({ useClass: Options })]);
  const journal = ofClass.get(Journal);
  const dead = new Promise<{ reason: string; attempt: number }>((resolve) =>
    ofClass.get(Relay).once('deadLettered', resolve),
  );
  const outbox: Outbox<PoolClient> = ofClass.get(Outbox);
  await outbox.transaction([], { type: 'nothing.takes.it', aggregate: ['order', '1'], payload: {} });
  const { reason, attempt } = await dead;
  journal.add({ what: 'useClass', reason, attempt });
  await ofClass.close();

  const existing = await boot([
    PostcommitModule.forRootAsync({ useExisting: NestarcOptions, imports: [OptionsModule] }),
  ]);
  existing.get(Journal).add({ what: 'useExisting', state: existing.get(Relay).stats().state });
  await existing.close();

  const pool = new Pool({ connectionString: process.env.DATABASE_URL ?? '' });
  const local = PostcommitModule.forRoot({ db: fromPg(pool), isGlobal: false, runRelay: false });
  const error = await boot([local]).then(
    () => undefined,
    (thrown: Error) => thrown.message.includes('NeedsOutbox'),
  );
  const app = await boot([local], true);
  app.get(Journal).add({ what: 'isGlobal: false', unresolved: error, inRoot: app.get(Outbox) instanceof Outbox });
  await app.close();
  await pool.end();
}
