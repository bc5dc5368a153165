import { Global, Injectable, Module, type OnModuleDestroy } from '@nestjs/common';
import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from './generated/client.js';
import { Journal } from './journal.js';

@Injectable()
export class PrismaService extends PrismaClient implements OnModuleDestroy {
  constructor(private readonly journal: Journal) {
    super({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL ?? '' }) });
  }

  async onModuleDestroy() {
    await this.$disconnect();
    this.journal.add({ what: 'disconnected' });
  }
}

@Global()
@Module({ providers: [PrismaService, Journal], exports: [PrismaService, Journal] })
export class PrismaModule {}
