import type { INestApplicationContext } from '@nestjs/common';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Pool } from 'pg';
import { Inbox, OutboxAdmin, PostcommitModule, Relay } from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule } from './database.js';
import { Journal } from './journal.js';
import { OrderModule } from './orders.js';

@Module({
  imports: [
    DatabaseModule,
    // No connection string: the pool has it.
    PostcommitModule.forRootAsync({ inject: [Pool], useFactory: (pool: Pool) => ({ db: fromPg(pool) }) }),
    OrderModule,
  ],
})
class AppModule {}

/** An order by HTTP, handled, and the application closed. */
export async function orders(): Promise<void> {
  const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'], abortOnError: false });
  await app.listen(0, '127.0.0.1');
  const journal = app.get(Journal);
  journal.add({ what: 'relay', state: app.get(Relay).stats().state });
  const delivered = new Promise<void>((resolve) => {
    let left = 3;
    app.get(Relay).on('delivered', () => {
      if (--left === 0) resolve();
    });
  });
  const response = await fetch(`${await app.getUrl()}/orders`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ id: 'order-1' }),
  });
  journal.add({ what: 'answered', status: response.status });
  await delivered;
  const counts = await app.get(OutboxAdmin).counts();
  journal.add({ what: 'counts', pending: counts.pending, delivered: counts.delivered });
  journal.add({ what: 'inbox', duplicates: [await processOnce(app), await processOnce(app)] });
  const relay = app.get(Relay);
  await app.close();
  journal.add({ what: 'relay', state: relay.stats().state });
}

async function processOnce(app: INestApplicationContext): Promise<boolean> {
  const client = await app.get(Pool).connect();
  try {
    await client.query('begin');
    const event = { consumer: 'mail', eventId: '018f4c6e-0000-7000-8000-000000000001' };
    const { duplicate } = await app.get(Inbox).once(client, event, async () => {});
    await client.query('commit');
    return duplicate;
  } finally {
    client.release();
  }
}
