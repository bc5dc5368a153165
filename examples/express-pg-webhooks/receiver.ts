import express, { type ErrorRequestHandler, type Express } from 'express';
import { PostcommitError } from 'postcommit';
import { verifyWebhook } from 'postcommit/webhook';
import type { Billing } from '../billing.ts';

/** An endpoint that hands genuine events to billing and refuses everything else. It would be a service of its own. */
export function createReceiver(secret: string, billing: Billing): Express {
  const app = express();
  // The body as it came: the signature is over its bytes, so it is parsed afterwards.
  app.post('/events', express.text({ type: '*/*', limit: '2mb' }), async (request, response) => {
    verifyWebhook({ headers: request.headers, body: request.body, secret });
    await billing.receive(JSON.parse(request.body));
    response.status(204).end(); // Not before it is stored: this is what the relay takes for delivered.
  });

  const onError: ErrorRequestHandler = (error, _request, response, _next) => {
    const isForged = error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_WEBHOOK_UNVERIFIED';
    response.status(isForged ? 401 : 500).end();
  };
  app.use(onError);
  return app;
}
