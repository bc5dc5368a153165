import { Global, Module } from '@nestjs/common';
import { kafka } from 'postcommit/kafka';
import { PostcommitModule } from 'postcommit/nestjs';
import { fromPrisma } from 'postcommit/prisma';
import { OrderController } from './order.controller.js';
import { OrderService } from './order.service.js';
import { PrismaService } from './prisma.service.js';
import { Receipts } from './receipts.js';

@Global()
@Module({ providers: [PrismaService], exports: [PrismaService] })
class PrismaModule {}

@Module({
  imports: [
    PrismaModule,
    PostcommitModule.forRootAsync({
      inject: [PrismaService],
      useFactory: (prisma: PrismaService) => ({
        db: fromPrisma(prisma), // The relay connects as its driver adapter does.
        destinations: { events: kafka({ brokers: (process.env.KAFKA_BROKERS ?? '').split(',') }) },
        // One topic for all that happens to an order: Kafka keeps order within a partition, not between topics.
        route: () => ({ to: 'events', topic: process.env.TOPIC ?? 'orders' }),
      }),
    }),
  ],
  controllers: [OrderController],
  providers: [OrderService, Receipts],
})
export class AppModule {}
