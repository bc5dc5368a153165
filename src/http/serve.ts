import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';

/** Where a request comes from, as the server knows it. */
export interface RequestConnection {
  /** The address of the client, or of the proxy that is connected. For servers other than `node:http`. */
  remoteAddress?: string | undefined;
  /** The request of `node:http`, which `nodeListener` and `@hono/node-server` pass. */
  incoming?: { socket?: { remoteAddress?: string | undefined } };
}

/** Returns the response to one request. An application can mount it into a server of its own. */
export type FetchHandler = (request: Request, connection?: RequestConnection) => Response | Promise<Response>;

/** Where a server listens. */
export interface ListenOptions {
  /** From 0 to 65,535; 0 is any free port. */
  port: number;
  /** The address to listen on. `0.0.0.0` and `::` are all addresses of the machine. Default `127.0.0.1`. */
  host?: string;
}

export interface HttpServerOptions extends ListenOptions {
  fetch: FetchHandler;
  /** Called when `fetch` throws or rejects. The client gets 500, without the error. */
  onError?: (error: unknown) => void;
}

export interface HttpServer {
  /** E.g. `http://127.0.0.1:9464`, with the port that it really has. */
  readonly url: string;
  readonly port: number;
  /** Accepts no more connections, lets requests finish for a second, then closes every connection. Never fails. */
  stop(): Promise<void>;
}

/** Further connections are closed at once: probes, a scraper and some open dashboards need few. */
const connectionsMax = 500;
/** How long requests in progress may take when the server stops. A live page (server-sent events) would never end. */
const stopMs = 1_000;

/**
 * Serves a fetch handler over HTTP/1.1. When a client disconnects, the signal of its request is aborted and the body of the
 * response is cancelled. Fails with POSTCOMMIT_E_CANNOT_LISTEN when the port is taken or the address is not of this machine.
 */
export async function serveHttp(options: HttpServerOptions): Promise<HttpServer> {
  const { port, host } = resolveListen(options);
  // Not at import: node:http, with what it loads, takes 13 MB in every process that only emits or relays.
  const [{ createServer }, { getRequestListener }] = await Promise.all([
    import('node:http'),
    import('@hono/node-server'),
  ]);
  const listener = getRequestListener(options.fetch, {
    hostname: host,
    // An application may rely on the global Request and Response.
    overrideGlobalObjects: false,
    errorHandler: (error) => {
      options.onError?.(error);
      return new Response('internal error\n', { status: 500, headers: { 'content-type': 'text/plain' } });
    },
  });
  const server = createServer(listener);
  server.maxConnections = connectionsMax;
  await listen(server, port, host);
  server.on('error', (error) => options.onError?.(error));
  const bound = (server.address() as AddressInfo).port;
  return { url: urlOf(host, bound), port: bound, stop: () => close(server) };
}

/** Checks the options and fills in the default, before anything listens. `prefix` is for their names in errors. */
export function resolveListen({ port, host = '127.0.0.1' }: ListenOptions, prefix = ''): Required<ListenOptions> {
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw bad(`${prefix}port must be a whole number from 0 to 65535. Got ${shown(port)}.`);
  }
  if (typeof host !== 'string' || host === '')
    throw bad(`${prefix}host must be an address or a name. Got ${shown(host)}.`);
  return { port, host };
}

/** Whether only programs on this machine can connect to it. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error: Error) =>
      reject(
        new PostcommitError('POSTCOMMIT_E_CANNOT_LISTEN', `${host}, port ${port}: ${error.message}.`, { cause: error }),
      );
    server.once('error', failed);
    server.listen(port, host, () => {
      server.off('error', failed);
      resolve();
    });
  });
}

async function close(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const timer = setTimeout(() => server.closeAllConnections(), stopMs);
  server.closeIdleConnections();
  await closed;
  clearTimeout(timer);
}

function urlOf(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
