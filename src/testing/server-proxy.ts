import { createConnection, createServer, type Server, type Socket } from 'node:net';

/** A proxy in front of a PostgreSQL server that can go down. Listens on 127.0.0.1. */
export interface ServerProxy {
  /** The connection string, through the proxy. */
  readonly connectionString: string;
  /** Ends all connections. New ones are accepted. */
  cut(): void;
  /** Ends all connections and refuses new ones, as a server that is down. */
  stop(): Promise<void>;
  /** Listens again, on the same port. */
  start(): Promise<void>;
}

/** Starts a proxy. `connectionString` is a URL with a host. */
export async function startServerProxy(connectionString: string): Promise<ServerProxy> {
  const target = new URL(connectionString);
  const sockets = new Set<Socket>();
  const track = (socket: Socket, other: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => {
      sockets.delete(socket);
      other.destroy();
    });
    socket.pipe(other);
  };
  const server = createServer({ noDelay: true }, (client) => {
    const port = Number(target.port || 5432);
    const upstream = createConnection({ host: target.hostname.replace(/^\[|\]$/g, ''), port, noDelay: true });
    track(client, upstream);
    track(upstream, client);
  });
  const cut = () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  const port = await listen(server, 0);
  const url = new URL(connectionString);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  return {
    connectionString: url.href,
    cut,
    async stop() {
      if (!server.listening) return;
      const stopped = new Promise((resolve) => server.close(resolve));
      cut();
      await stopped;
    },
    start: async () => void (await listen(server, port)),
  };
}

async function listen(server: Server, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  return (server.address() as { port: number }).port;
}
