import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { OnOutboxEvent, OutboxEmitter, type OutboxEventContext, PostcommitModule, Relay } from 'postcommit/nestjs';
import type { Prisma } from './generated/client.js';
import { Journal } from './journal.js';
import { OrderCreatedEvent } from './order-events.js';
import { PrismaModule, PrismaService } from './prisma.service.js';

@Injectable()
class OrderService {
  constructor(
    private readonly prisma: PrismaService,
    private readonly outbox: OutboxEmitter<Prisma.TransactionClient>,
  ) {}

  async create(id: string, isRolledBack = false): Promise<void> {
    await this.prisma.$transaction(async (tx) => {
      const order = await tx.order.create({ data: { id } });
      await this.outbox.emit(tx, new OrderCreatedEvent(order.id, 12));
      if (isRolledBack) throw new Error('rolled back');
    });
  }

  async createInBatch(id: string): Promise<void> {
    const order = this.prisma.order.create({ data: { id } });
    await this.prisma.$transaction([order, this.outbox.statement(new OrderCreatedEvent(id, 12))]);
  }

  async refused(): Promise<string> {
    // Its type tells it, too.
    const emitted = this.outbox.emit(this.prisma as unknown as Prisma.TransactionClient, new OrderCreatedEvent('0', 1));
    return emitted.then(
      () => 'none',
      ({ code }: { code: string }) => code,
    );
  }
}

@Injectable()
class Handler {
  constructor(
    private readonly prisma: PrismaService,
    private readonly journal: Journal,
  ) {}

  @OnOutboxEvent(OrderCreatedEvent)
  async work({ orderId }: OrderCreatedEvent, { handler }: OutboxEventContext) {
    this.journal.add({ what: 'begun', orderId, handler });
    if (orderId !== 'last') return;
    await this.journal.until('stopping');
    await this.prisma.order.create({ data: { id: 'made by the handler' } });
    this.journal.add({ what: 'finished' });
  }
}

@Module({
  // As with @nestarc/outbox: no connection string, and the class of a provider.
  imports: [PrismaModule, PostcommitModule.forRoot({ prisma: PrismaService, polling: { interval: 100 } })],
  providers: [OrderService, Handler],
})
class AppModule {}

export async function prisma(): Promise<void> {
  const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'], abortOnError: false });
  const journal = app.get(Journal);
  const orders = app.get(OrderService);
  await orders.create('first');
  await orders.create('not there', true).catch(() => {});
  await orders.createInBatch('batched');
  journal.add({ what: 'refused', code: await orders.refused() });
  await journal.until('begun', 2);
  await orders.create('last');
  await journal.until('begun', 3);
  const relay = app.get(Relay);
  const closed = app.close();
  while (relay.stats().state !== 'stopping') await new Promise((resolve) => setTimeout(resolve, 1));
  journal.add({ what: 'stopping' });
  await closed;
  journal.add({ what: 'relay', state: relay.stats().state });
}
