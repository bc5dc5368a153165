import express, { type ErrorRequestHandler, type Express } from 'express';
import { type OrderService, SoldOut } from '../order-service.ts';

/** The order service over HTTP. A request is answered when its transaction has committed: with the event in it. */
export function createApp(orders: OrderService): Express {
  const app = express();
  app.use(express.json());

  app.post('/orders', async (request, response) => {
    const { id, total } = request.body ?? {};
    if (typeof id !== 'string' || !Number.isInteger(total)) {
      response.status(400).json({ error: 'An order has an id and a total, e.g. {"id":"1","total":100}.' });
      return;
    }
    await orders.place(id, total);
    response.status(201).json({ id });
  });

  app.post('/orders/:id/payment', async (request, response) => {
    await orders.pay(request.params.id);
    response.status(204).end();
  });

  const onError: ErrorRequestHandler = (error, _request, response, _next) => {
    const isSoldOut = error instanceof SoldOut;
    response.status(isSoldOut ? 409 : 500).json({ error: isSoldOut ? error.message : 'Internal error' });
  };
  app.use(onError);
  return app;
}
