import { createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import type { Publisher, PublishOutcome } from '../../src/publishers/publisher.ts';
import { type WebhookOptions, webhook } from '../../src/publishers/webhook.ts';
import { testMessage } from '../../src/testing/index.ts';

/** A publisher for one test: closed when it ends. */
export function open(options: Partial<WebhookOptions> = {}): Publisher {
  const publisher = webhook({ secret: null, allowPrivateAddresses: true, ...options });
  onTestFinished(() => publisher.close());
  return publisher;
}

export async function publishOne(
  publisher: Publisher,
  topic = 'x',
  signal = AbortSignal.timeout(20_000),
): Promise<PublishOutcome> {
  const [outcome] = await publisher.publish([testMessage({ topic, body: 'hello' })], signal);
  if (outcome === undefined) throw new Error('no outcome');
  return outcome;
}

/** A server below HTTP, for what no HTTP server would do. */
export async function rawServer(onConnection: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    onConnection(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as { port: number }).port}/`;
}
