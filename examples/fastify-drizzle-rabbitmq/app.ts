import { DrizzleQueryError, eq, sql } from 'drizzle-orm';
import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import { type FastifyInstance, fastify } from 'fastify';
import type pg from 'pg';
import { createOutbox, type Outbox, type Relay } from 'postcommit';
import { fromDrizzle } from 'postcommit/drizzle';
import { postcommit } from 'postcommit/fastify';
import { orders, stock } from './schema.ts';

/** What db.transaction() passes to its callback. */
type Transaction = Parameters<Parameters<NodePgDatabase['transaction']>[0]>[0];

declare module 'fastify' {
  interface FastifyInstance {
    outbox: Outbox<Transaction>;
  }
}

/** PostgreSQL's code for it: there would be less than nothing in stock. */
const checkViolation = '23514';

/** The order service over HTTP. The relay starts and stops with it, before the pool closes. */
export async function createApp(pool: pg.Pool, relay: Relay): Promise<FastifyInstance> {
  const app = fastify();
  app.addHook('onClose', () => pool.end());
  const db = drizzle(pool);
  await app.register(postcommit, { outbox: createOutbox({ db: fromDrizzle(db) }), relay });

  app.post<{ Body: { id: string; total: number } }>('/orders', { schema: { body: order } }, async (request, reply) => {
    const { id, total } = request.body;
    await db.transaction(async (tx) => {
      await tx.insert(orders).values({ id, total, status: 'placed' });
      await app.outbox.emit(tx, { type: 'order.created', aggregate: ['order', id], payload: { total } });
      // The place in the transaction does not matter: what fails afterwards takes the event along.
      await tx.update(stock).set({ pieces: sql`${stock.pieces} - 1` });
    });
    return reply.code(201).send({ id });
  });

  app.post<{ Params: { id: string } }>('/orders/:id/payment', async (request, reply) => {
    const { id } = request.params;
    await db.transaction(async (tx) => {
      await tx.update(orders).set({ status: 'paid' }).where(eq(orders.id, id));
      await app.outbox.emit(tx, { type: 'order.paid', aggregate: ['order', id], payload: {} });
    });
    return reply.code(204).send();
  });

  app.setErrorHandler((error, _request, reply) => {
    const cause = error instanceof DrizzleQueryError ? (error.cause as { code?: string } | undefined) : undefined;
    if (cause?.code === checkViolation) return reply.code(409).send({ error: 'sold out' });
    return reply.send(error);
  });
  return app;
}

const order = {
  type: 'object',
  required: ['id', 'total'],
  properties: { id: { type: 'string' }, total: { type: 'integer' } },
};
