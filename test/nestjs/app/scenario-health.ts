import { Controller, Get, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { HealthCheckService, TerminusModule } from '@nestjs/terminus';
import { Pool, type PoolClient } from 'pg';
import { Outbox, PostcommitHealthIndicator, PostcommitModule, Relay } from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule } from './database.js';
import { Journal } from './journal.js';
import { OtherHandler } from './other-handler.js';

@Controller('health')
class HealthController {
  constructor(
    private readonly health: HealthCheckService,
    private readonly outbox: PostcommitHealthIndicator,
  ) {}

  @Get()
  check() {
    return this.health.check([() => this.outbox.isHealthy('outbox', { deadLettersMax: 0 })]);
  }
}

@Module({
  imports: [
    DatabaseModule,
    TerminusModule,
    PostcommitModule.forRootAsync({
      inject: [Pool],
      useFactory: (pool: Pool) => ({ db: fromPg(pool), relay: { noHandler: 'fail' } }),
    }),
  ],
  controllers: [HealthController],
  providers: [OtherHandler],
})
class AppModule {}

export async function health(): Promise<void> {
  const app = await NestFactory.create(AppModule, { logger: false, abortOnError: false });
  await app.listen(0, '127.0.0.1');
  const journal = app.get(Journal);
  const relay = app.get(Relay);
  const outbox: Outbox<PoolClient> = app.get(Outbox);
  const ask = async () => {
    const response = await fetch(`${await app.getUrl()}/health`);
    const { status, details } = (await response.json()) as { status: string; details: { outbox: object } };
    journal.add({ what: 'health', code: response.status, status, ...details.outbox, result: status });
  };
  await ask();
  const dead = new Promise((resolve) => relay.once('deadLettered', resolve));
  await outbox.transaction([], { type: 'nothing.takes.it', aggregate: ['order', '1'], payload: {} });
  await dead;
  await ask();
  await relay.stop();
  await ask();
  await app.close();
}
