import { AsyncLocalStorage } from 'node:async_hooks';
import { Body, Controller, Inject, Injectable, Module, Post, Scope } from '@nestjs/common';
import { REQUEST } from '@nestjs/core';
import { Pool, type PoolClient } from 'pg';
import { OnOutboxEvent, Outbox, OutboxEmitter, type OutboxEventContext } from 'postcommit/nestjs';
import { Journal } from './journal.js';
import { OrderCreatedEvent, OrderPaidEvent } from './order-events.js';

/** The context of a request, as request loggers and tenancy packages keep it. */
export const requests = new AsyncLocalStorage<string>();

@Injectable()
export class OrderService {
  // Both are the same: OutboxEmitter is the name in @nestarc/outbox.
  constructor(
    private readonly outbox: Outbox<PoolClient>,
    private readonly emitter: OutboxEmitter<PoolClient>,
    private readonly pool: Pool,
  ) {}

  async create(id: string): Promise<void> {
    const client = await this.pool.connect();
    try {
      await client.query('begin');
      await client.query('insert into orders (id) values ($1)', [id]);
      await this.outbox.emit(client, new OrderCreatedEvent(id, 12), {
        tenantId: 'acme',
        correlationId: 'c-1',
        causationId: 'c-0',
        idempotencyKey: 'k-1',
        headers: { source: 'shop' },
      });
      await this.emitter.emitMany(client, [
        { event: new OrderPaidEvent(1200n), options: { aggregateType: 'order', aggregateId: id } },
        { type: 'order.archived', aggregate: ['order', id], payload: null },
      ]);
      await client.query('commit');
    } finally {
      client.release();
    }
  }
}

@Controller('orders')
export class OrderController {
  constructor(private readonly orders: OrderService) {}

  @Post()
  async create(@Body() body: { id: string }) {
    await requests.run('a request', () => this.orders.create(body.id));
    return { ok: true };
  }
}

@Injectable()
export class OrderMails {
  constructor(private readonly journal: Journal) {}

  @OnOutboxEvent(OrderCreatedEvent, OrderPaidEvent)
  async note(payload: unknown, context: OutboxEventContext) {
    const { eventId, eventType, tenantId, correlationId, causationId, headers, retryCount, handler, idempotencyKey } =
      context;
    this.journal.add({
      ...{ what: 'handled', handler, payload, eventType, tenantId, correlationId, causationId, retryCount },
      ...{ idempotent: idempotencyKey === `${eventId}:${handler}`, source: headers.source ?? null },
      ...{ givenKey: headers['idempotency-key'] ?? null, request: requests.getStore() ?? null },
    });
  }

  @OnOutboxEvent('order.created', { name: 'receipt', timeoutMs: 5_000 })
  @OnOutboxEvent('order.archived', { name: 'archive' })
  receipt(payload: unknown, { handler }: OutboxEventContext) {
    this.journal.add({ what: 'handled', handler, payload });
  }
}

/** A new one for each event. */
@Injectable({ scope: Scope.REQUEST })
export class ScopedHandler {
  private static made = 0;
  private readonly number = ++ScopedHandler.made;

  constructor(
    private readonly journal: Journal,
    @Inject(REQUEST) private readonly request: { type: string },
  ) {}

  @OnOutboxEvent(OrderCreatedEvent)
  handle(_payload: unknown, { handler }: OutboxEventContext) {
    this.journal.add({ what: 'handled', handler, number: this.number, of: this.request.type });
  }
}

@Module({
  controllers: [OrderController],
  providers: [OrderService, OrderMails, ScopedHandler, { provide: 'ALSO_MAILS', useExisting: OrderMails }],
})
export class OrderModule {}
