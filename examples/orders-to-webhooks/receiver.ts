import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { PostcommitError } from 'postcommit';
import { verifyWebhook } from 'postcommit/webhook';
import type { Billing } from '../billing.ts';

export interface Receiver {
  readonly url: string;
  stop(): Promise<void>;
}

/** An endpoint that hands genuine events to billing and refuses everything else. */
export async function startReceiver(secret: string, billing: Billing): Promise<Receiver> {
  const server = createServer((request, response) => void receive(request, response, secret, billing));
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/events`,
    stop: () => new Promise((stopped) => server.close(() => stopped())),
  };
}

async function receive(request: IncomingMessage, response: ServerResponse, secret: string, billing: Billing) {
  try {
    const body = await text(request); // As it came: the signature is over the bytes, so it is parsed afterwards.
    verifyWebhook({ headers: request.headers, body, secret });
    await billing.receive(JSON.parse(body));
    response.writeHead(204).end(); // Not before it is stored: this is what the relay takes for delivered.
  } catch (error) {
    const isForged = error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_WEBHOOK_UNVERIFIED';
    response.writeHead(isForged ? 401 : 500).end();
  }
}
