import { connect, createServer, type Socket } from 'node:net';

export interface HoldingProxy {
  readonly port: number;
  /** From now on, what the open connections send is kept back; new ones are not touched. */
  hold(): void;
  /** Lets it go on, although the sender may be long gone. Resolves when the server has had the time to read it. */
  release(): Promise<void>;
  close(): Promise<void>;
}

/** A network in which the bytes of an old connection arrive after those of a new one. */
export async function holdingProxy(targetPort: number): Promise<HoldingProxy> {
  const links = new Set<{ held: Buffer[] | undefined; client: Socket; upstream: Socket }>();
  const server = createServer((client) => {
    const upstream = connect(targetPort, '127.0.0.1');
    const link = { held: undefined as Buffer[] | undefined, client, upstream };
    links.add(link);
    for (const socket of [client, upstream]) socket.on('error', () => {});
    client.on('data', (bytes) => (link.held ? link.held.push(bytes) : upstream.write(bytes)));
    client.on('close', () => link.held ?? upstream.end());
    upstream.pipe(client);
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  const address = server.address();
  return {
    port: typeof address === 'object' && address ? address.port : 0,
    hold() {
      for (const link of links) link.held = [];
    },
    async release() {
      const released = [...links].filter(({ held }) => held !== undefined);
      for (const { held = [], upstream } of released) {
        if (!upstream.writable) continue;
        for (const bytes of held) upstream.write(bytes);
        const ended = new Promise((resolve) => upstream.once('close', resolve));
        upstream.unpipe().resume().end();
        await ended;
      }
    },
    async close() {
      for (const { client, upstream } of links) for (const socket of [client, upstream]) socket.destroy();
      await new Promise((closed) => server.close(closed));
    },
  };
}
