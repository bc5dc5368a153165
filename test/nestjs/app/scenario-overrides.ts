import { Injectable, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Pool, type PoolClient } from 'pg';
import {
  OnOutboxEvent,
  Outbox,
  POSTCOMMIT_OPTIONS,
  PostcommitModule,
  RecordingOutbox,
  Relay,
  RelayRunner,
} from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule } from './database.js';
import { Journal } from './journal.js';
import { OrderCreatedEvent } from './order-events.js';

@Injectable()
class Mailer {
  send(_id: string): void {
    throw new Error('no test sends mails');
  }
}

@Injectable()
class Mails {
  constructor(private readonly mailer: Mailer) {}

  @OnOutboxEvent(OrderCreatedEvent)
  send(payload: OrderCreatedEvent) {
    this.mailer.send(payload.orderId);
  }
}

@Module({
  imports: [
    DatabaseModule,
    PostcommitModule.forRootAsync({ inject: [Pool], useFactory: (pool: Pool) => ({ db: fromPg(pool) }) }),
  ],
  providers: [Mailer, Mails],
})
class AppModule {}

export async function overrides(): Promise<void> {
  // A unit test: no database at all.
  const recorded = new RecordingOutbox();
  const unit = await Test.createTestingModule({ imports: [AppModule] })
    .overrideProvider(Outbox)
    .useValue(recorded)
    .overrideProvider(Relay)
    .useValue({})
    .compile();
  await unit.init();
  const journal = unit.get(Journal);
  await unit.get(Outbox).emit('no transaction', new OrderCreatedEvent('7', 1), { tenantId: 'acme' });
  journal.add({
    what: 'recorded',
    events: recorded.events.map(({ type, payload, headers }) => ({ type, payload, headers })),
  });
  await unit.close();

  // A test of the way through the database, step by step.
  const sent: string[] = [];
  const whole = await Test.createTestingModule({ imports: [AppModule] })
    .overrideProvider(RelayRunner)
    .useValue({})
    .overrideProvider(Mailer)
    .useValue({ send: (id: string) => sent.push(id) })
    .compile();
  await whole.init();
  const outbox: Outbox<PoolClient> = whole.get(Outbox);
  await outbox.transaction((_tx, emit) => emit(new OrderCreatedEvent('8', 1)));
  const before = whole.get(Relay).stats().state;
  const { delivered } = await whole.get(Relay).runOnce();
  journal.add({ what: 'run once', before, delivered, sent });
  await whole.close();

  // Other options.
  const pool = new Pool({ connectionString: process.env.DATABASE_URL ?? '' });
  const other = await Test.createTestingModule({ imports: [AppModule] })
    .overrideProvider(POSTCOMMIT_OPTIONS)
    .useValue({ db: fromPg(pool), runRelay: false })
    .compile();
  await other.init();
  journal.add({ what: 'options', state: other.get(Relay).stats().state });
  await other.close();
  await pool.end();
}
