import { Controller, Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ClientsModule, EventPattern, type MicroserviceOptions, Payload, Transport } from '@nestjs/microservices';
import { Pool, type PoolClient } from 'pg';
import type { Message, Publisher } from 'postcommit';
import { clientProxy, Outbox, PostcommitModule, Relay } from 'postcommit/nestjs';
import { fromPg } from 'postcommit/pg';
import { DatabaseModule } from './database.js';
import { Journal } from './journal.js';

const port = Number(process.env.MICROSERVICE_PORT);

@Controller()
class BillingController {
  constructor(private readonly journal: Journal) {}

  @EventPattern('order.created')
  onOrder(@Payload() envelope: { eventType: string; data: unknown; aggregate: unknown }) {
    this.journal.add({ what: 'billed', type: envelope.eventType, data: envelope.data, aggregate: envelope.aggregate });
  }
}

@Module({ imports: [DatabaseModule], controllers: [BillingController] })
class BillingModule {}

/** A publisher with dependencies of its own. */
@Injectable()
class AuditPublisher implements Publisher {
  readonly kind = 'audit';
  readonly capabilities = {
    batchSizeMax: 10,
    batchBytesMax: 100_000,
    batchesInFlightMax: 1,
    ordered: true,
    keyRuns: false,
    deduplicates: false,
    cloudEventsPrefix: 'ce_',
  };

  constructor(private readonly journal: Journal) {}

  async connect() {}
  async health() {}
  async close() {}
  async publish(batch: readonly Message[]) {
    for (const { eventType } of batch) this.journal.add({ what: 'audited', type: eventType });
    return batch.map(() => ({ kind: 'delivered' }) as const);
  }
}

@Module({
  imports: [
    DatabaseModule,
    ClientsModule.register([{ name: 'BILLING', transport: Transport.TCP, options: { host: '127.0.0.1', port } }]),
    PostcommitModule.forRootAsync({
      inject: [Pool],
      useFactory: (pool: Pool) => ({
        db: fromPg(pool),
        destinations: {
          billing: { publisher: clientProxy('BILLING'), probeDelayMs: 50, probeDelayMsMax: 50 },
          audit: AuditPublisher,
        },
      }),
    }),
  ],
  providers: [AuditPublisher],
})
class AppModule {}

const startBilling = async () => {
  const billing = await NestFactory.createMicroservice<MicroserviceOptions>(BillingModule, {
    transport: Transport.TCP,
    options: { host: '127.0.0.1', port },
    logger: ['error', 'warn'],
    abortOnError: false,
  });
  await billing.listen();
  return billing;
};

/** The service behind the client is down at first. */
export async function microservice(): Promise<void> {
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false });
  const journal = app.get(Journal);
  const relay = app.get(Relay);
  const outbox: Outbox<PoolClient> = app.get(Outbox);
  const shelved = new Promise((resolve) => relay.once('unavailable', resolve));
  await outbox.transaction([], { type: 'order.created', aggregate: ['order', '1'], payload: { total: 12 } });
  await shelved;
  journal.add({ what: 'billing is down', failed: relay.stats().failed });
  const delivered = new Promise((resolve) => relay.once('delivered', resolve));
  const billing = await startBilling();
  await billing.get(Journal).until('billed');
  await delivered;
  await app.close();
  await billing.close();
}
