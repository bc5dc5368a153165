import { Injectable } from '@nestjs/common';
import { OnOutboxEvent, type OutboxEventContext } from 'postcommit/nestjs';
import { OrderCreatedEvent } from './order-events.js';
import { PrismaService } from './prisma.service.js';

@Injectable()
export class Receipts {
  constructor(private readonly prisma: PrismaService) {}

  /** Called at least once for each order, so it must be able to see the same event again: it has the same id then. */
  @OnOutboxEvent(OrderCreatedEvent, { name: 'send-receipt' })
  async send({ orderId }: OrderCreatedEvent, { eventId }: OutboxEventContext): Promise<void> {
    await this.prisma.receipt.upsert({ where: { eventId }, create: { eventId, orderId }, update: {} });
  }
}
