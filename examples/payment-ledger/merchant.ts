import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { verifyWebhook } from 'postcommit/webhook';
import type { BookingPayload, Envelope } from './events.ts';

/** The merchant's endpoint, which belongs to another company: it checks signatures, and keeps each notice once by its id. */
export class Merchant {
  readonly notices = new Map<string, BookingPayload>();
  readonly secret: string;
  readonly #server = createServer((request, response) => void this.#receive(request, response));
  url = '';

  constructor(secret: string) {
    this.secret = secret;
  }

  async start(): Promise<void> {
    await new Promise<void>((listening) => this.#server.listen(0, '127.0.0.1', listening));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/bookings`;
  }

  async stop(): Promise<void> {
    const closed = new Promise((done) => this.#server.close(done));
    this.#server.closeAllConnections();
    await closed;
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const body = await text(request);
      const { eventId } = verifyWebhook({ headers: request.headers, body, secret: this.secret });
      this.notices.set(eventId, (JSON.parse(body) as Envelope<BookingPayload>).data);
      response.writeHead(204).end();
    } catch {
      response.writeHead(401).end();
    }
  }
}
