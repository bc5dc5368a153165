import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Pool, type PoolClient } from 'pg';
import { OnOutboxEvent, Outbox, type OutboxEventContext, PostcommitModule, Relay } from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule, PoolCloser } from './database.js';
import { Journal } from './journal.js';

@Injectable()
class SlowHandler {
  constructor(
    private readonly journal: Journal,
    private readonly pool: Pool,
  ) {}

  @OnOutboxEvent('order.created')
  async work(_payload: unknown, context: OutboxEventContext) {
    this.journal.add({ what: 'begun', id: context.event.aggregate.id });
    await this.journal.until('stopping');
    if (context.event.aggregate.id === 'hangs') return new Promise(() => {});
    // The pool must still be open.
    await this.pool.query('insert into orders (id) values ($1)', [context.event.aggregate.id]);
    this.journal.add({ what: 'finished', id: context.event.aggregate.id });
    return undefined;
  }
}

// Nest 10 stops the modules first that are deepest, so this one is deep.
@Module({ imports: [DatabaseModule] })
class DeepModule {}
@Module({ imports: [DeepModule] })
class DeeperModule {}
@Module({ imports: [DeeperModule] })
class DeepestModule {}

@Module({
  imports: [
    DeepestModule,
    PostcommitModule.forRootAsync({
      inject: [Pool],
      useFactory: (pool: Pool) => ({ db: fromPg(pool), relay: { stopTimeoutMs: 1_000, inFlightMax: 3 } }),
    }),
  ],
  // A second one, beside the handler: its hook must not be called early either.
  providers: [
    SlowHandler,
    { provide: 'SECOND_POOL', useFactory: (journal: Journal) => secondPool(journal), inject: [Journal] },
  ],
})
class AppModule {}

function secondPool(journal: Journal) {
  return { onModuleDestroy: () => journal.add({ what: 'second pool closed' }), PoolCloser };
}

/** Two events under way, a third one that hangs, and SIGTERM. Nest ends the process with the same signal. */
export async function shutdown(): Promise<void> {
  const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'], abortOnError: false });
  app.enableShutdownHooks();
  const journal = app.get(Journal);
  const outbox: Outbox<PoolClient> = app.get(Outbox);
  await outbox.transaction(async (_tx, emit) => {
    for (const id of ['one', 'two', 'hangs'])
      await emit({ type: 'order.created', aggregate: ['order', id], payload: {} });
  });
  await journal.until('begun', 3);
  const relay = app.get(Relay);
  process.kill(process.pid, 'SIGTERM');
  const timer = setInterval(() => {
    if (relay.stats().state !== 'stopping') return;
    clearInterval(timer);
    journal.add({ what: 'stopping' });
  }, 1);
  await new Promise(() => {});
}
