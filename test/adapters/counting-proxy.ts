import { createConnection, createServer, type Socket } from 'node:net';

export interface CountingProxy {
  /** The connection string, through the proxy. */
  readonly url: string;
  /** How often a client has sent something after the server had answered what was sent before. */
  roundTrips(): number;
  close(): Promise<void>;
}

/** A proxy in front of PostgreSQL that counts round trips, of all connections together. */
export async function startCountingProxy(connectionString: string): Promise<CountingProxy> {
  const target = new URL(connectionString);
  const sockets = new Set<Socket>();
  let roundTrips = 0;
  const server = createServer((client) => {
    const upstream = createConnection({ host: target.hostname, port: Number(target.port || 5432) });
    let isAnswered = true;
    for (const socket of [client, upstream]) {
      sockets.add(socket.on('error', () => {}));
      socket.on('close', () => sockets.delete(socket));
    }
    client.on('data', (chunk) => {
      if (isAnswered) roundTrips++;
      isAnswered = false;
      upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      isAnswered = true;
      client.write(chunk);
    });
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const url = new URL(connectionString);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as { port: number }).port);
  return {
    url: url.href,
    roundTrips: () => roundTrips,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((closed) => server.close(closed));
    },
  };
}
