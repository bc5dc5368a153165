import { Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Pool, type PoolClient } from 'pg';
import { Outbox, PostcommitModule, Relay } from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule } from './database.js';
import { Journal } from './journal.js';
import { OtherHandler } from './other-handler.js';
import * as older from './wrapped-handlers.js';

type Call = older.Call;

/** Handlers beside other decorators, with both kinds of decorators. */
export async function wrapped(): Promise<void> {
  const journal = new Journal();
  const tell =
    (kind: string): Call =>
    (handler, ...wrappers) =>
      journal.add({ what: 'called', kind, handler, wrappers });
  // The same file, compiled with standard decorators.
  const path = './standard/wrapped-handlers.js';
  const standard: typeof older = await import(path);
  const all = (kind: string, { insideClass, outsideClasses, scopedClass }: typeof older) => {
    const call = tell(kind);
    return [insideClass(call), ...outsideClasses(call), scopedClass(call)];
  };
  await deliver(journal, all('older', older));
  await deliver(journal, [standard.insideClass(tell('standard'))]);
  await refused(journal, 'replaced', standard.outsideClasses(tell('lost')));
  await deliver(journal, [standard.scopedClass(tell('lost'))]);
  Object.assign(Symbol, { metadata: Symbol('metadata') });
  await deliver(journal, all('metadata', standard));
}

async function refused(journal: Journal, what: string, providers: Type[]): Promise<void> {
  try {
    await deliver(journal, providers);
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    journal.add({ what, code, message });
  }
}

async function deliver(journal: Journal, providers: Type[]): Promise<void> {
  const warn = (fields: object, message: string) => journal.add({ what: 'warned', ...fields, message });
  const logger = { debug() {}, info() {}, warn, error() {} };

  @Module({
    imports: [
      DatabaseModule,
      PostcommitModule.forRootAsync({
        inject: [Pool],
        useFactory: (pool: Pool) => ({ db: fromPg(pool), relay: { logger, noHandler: 'fail' } }),
      }),
    ],
    providers: [OtherHandler, ...providers],
  })
  class AppModule {}

  const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false });
  const outbox: Outbox<PoolClient> = app.get(Outbox);
  const ended = new Promise<void>((resolve) => {
    const relay = app.get(Relay);
    relay.on('delivered', () => resolve());
    relay.on('deadLettered', () => resolve());
  });
  await outbox.transaction([], [{ type: 'wrapped', aggregate: ['handler', '1'], payload: {} }]);
  await ended;
  await app.close();
}
