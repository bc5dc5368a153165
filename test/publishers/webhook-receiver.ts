import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import { testCertificate, testCertificateKey } from './webhook-certificate.ts';

export interface ReceivedRequest {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  /** Names and values in turn, as they came. */
  rawHeaders: string[];
  body: Buffer;
}

type Answer = (request: ReceivedRequest, response: ServerResponse) => unknown;

/** A real HTTP server on a port of its own that keeps what it receives. */
export class Receiver {
  readonly requests: ReceivedRequest[] = [];
  /** What to do with a request that was received whole. */
  answer: Answer = (_, response) => response.writeHead(204).end();
  /** Bodies beyond this are answered with 413. */
  bodyBytesMax = Number.POSITIVE_INFINITY;
  /** Connections opened so far. */
  connections = 0;
  /** Connections open now. */
  connectionsOpen = 0;
  /** The most requests that were there at once. */
  atOnceMost = 0;
  readonly #secure: boolean;
  readonly #host: string;
  #server: Server;
  #port = 0;
  #atOnce = 0;
  #frozen: (() => void)[] | undefined;

  private constructor(secure: boolean, host: string) {
    this.#secure = secure;
    this.#host = host;
    this.#server = this.#create();
  }

  static async start({ secure = false, host = '127.0.0.1' } = {}): Promise<Receiver> {
    const receiver = new Receiver(secure, host);
    await receiver.start();
    return receiver;
  }

  /** For one test: stopped when it ends. */
  static async forTest(options?: { secure?: boolean; host?: string }): Promise<Receiver> {
    const receiver = await Receiver.start(options);
    onTestFinished(() => receiver.stop());
    return receiver;
  }

  get port(): number {
    return this.#port;
  }

  url(path = '/', host = this.#host): string {
    return `${this.#secure ? 'https' : 'http'}://${host}:${this.#port}${path}`;
  }

  bodies(path?: string): string[] {
    return this.requests.filter((one) => path === undefined || one.path === path).map(({ body }) => body.toString());
  }

  /** On the same port as before. */
  async start(): Promise<void> {
    if (this.#server.listening) return;
    this.#server = this.#create();
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  /** Accepts connections and requests, and answers nothing. */
  freeze(): void {
    this.#frozen ??= [];
  }

  thaw(): void {
    const waiting = this.#frozen ?? [];
    this.#frozen = undefined;
    for (const goOn of waiting) goOn();
  }

  #create(): Server {
    const listener = (request: IncomingMessage, response: ServerResponse) => {
      if (this.#frozen) this.#frozen.push(() => void this.#receive(request, response));
      else void this.#receive(request, response);
    };
    const server: Server = this.#secure
      ? createSecureServer({ cert: testCertificate, key: testCertificateKey }, listener)
      : createServer(listener);
    // Idle connections end when the publisher ends them.
    server.keepAliveTimeout = 60_000;
    server.on('connection', (socket: Socket) => {
      this.connections += 1;
      this.connectionsOpen += 1;
      socket.on('error', () => {});
      socket.once('close', () => {
        this.connectionsOpen -= 1;
      });
    });
    return server;
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#atOnce += 1;
    this.atOnceMost = Math.max(this.atOnceMost, this.#atOnce);
    response.once('close', () => {
      this.#atOnce -= 1;
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        if (bytes <= this.bodyBytesMax) chunks.push(chunk);
      }
    } catch {
      return;
    }
    if (bytes > this.bodyBytesMax) {
      response.writeHead(413).end(`bodies are limited to ${this.bodyBytesMax} bytes`);
      return;
    }
    const { method = '', url = '', headers, rawHeaders } = request;
    const received = { method, path: url, headers, rawHeaders, body: Buffer.concat(chunks) };
    if (method !== 'GET') this.requests.push(received);
    await this.answer(received, response);
  }
}
