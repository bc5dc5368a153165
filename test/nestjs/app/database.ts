import { Global, Injectable, Module, type OnModuleDestroy } from '@nestjs/common';
import { Pool } from 'pg';
import { Journal } from './journal.js';

/** Closes the pool when the application stops, as database modules do. */
@Injectable()
export class PoolCloser implements OnModuleDestroy {
  constructor(
    private readonly pool: Pool,
    private readonly journal: Journal,
  ) {}

  async onModuleDestroy() {
    await this.pool.end();
    this.journal.add({ what: 'pool closed' });
  }
}

@Global()
@Module({
  providers: [
    { provide: Pool, useFactory: () => new Pool({ connectionString: process.env.DATABASE_URL }) },
    Journal,
    PoolCloser,
  ],
  exports: [Pool, Journal],
})
export class DatabaseModule {}
