import { ConflictException, Injectable } from '@nestjs/common';
import { Outbox } from 'postcommit/nestjs';
import type { Prisma } from './generated/client.js';
import { OrderCreatedEvent, OrderPaidEvent } from './order-events.js';
import { PrismaService } from './prisma.service.js';

@Injectable()
export class OrderService {
  constructor(
    private readonly prisma: PrismaService,
    private readonly outbox: Outbox<Prisma.TransactionClient>,
  ) {}

  async place(id: string, total: number): Promise<void> {
    await this.prisma.$transaction(async (tx) => {
      const order = await tx.order.create({ data: { id, total, status: 'placed' } });
      await this.outbox.emit(tx, new OrderCreatedEvent(order.id, order.total));
      // The place in the transaction does not matter: what fails afterwards takes the event along.
      const taken = await tx.$executeRaw`update stock set pieces = pieces - 1 where pieces > 0`;
      if (taken === 0) throw new ConflictException('sold out');
    });
  }

  async pay(id: string): Promise<void> {
    await this.prisma.$transaction(async (tx) => {
      await tx.order.update({ where: { id }, data: { status: 'paid' } });
      await this.outbox.emit(tx, new OrderPaidEvent(id));
    });
  }
}
