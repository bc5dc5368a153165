import type { IncomingMessage, ServerResponse } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import type { FetchHandler } from './serve.ts';

export type NodeListener = (incoming: IncomingMessage, outgoing: ServerResponse) => Promise<void>;

/** A fetch handler as a listener of `node:http`, which Express, Fastify and Nest can call. */
export function nodeListener({ fetch }: { fetch: FetchHandler }): NodeListener {
  return getRequestListener(fetch, { overrideGlobalObjects: false }) as NodeListener;
}
