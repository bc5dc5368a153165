import { createConnection, createServer, type Server, type Socket } from 'node:net';

export interface TcpProxy {
  readonly port: number;
  /** Open connections through the proxy now. */
  readonly connections: number;
  /** Connections that were reset because of refuse(). */
  readonly refused: number;
  /** The same connection string, through the proxy. */
  url(connectionString: string): string;
  /** Destroys every open connection, on both sides, with what was still under way. New ones are taken. */
  cut(): void;
  /** New connections are reset at once, as when the server is down; open ones stay. */
  refuse(): void;
  accept(): void;
  /** Takes bytes and forwards none, in both directions, also for new connections: a network that drops packets. */
  stall(): void;
  resume(): void;
  /** One-way latency in each direction, from the next chunk on. */
  delayMs(milliseconds: number): void;
  /** How fast each direction of each connection is, from the next chunk on. */
  throttle(bytesPerSecond: number): void;
  close(): Promise<void>;
}

/** A proxy in front of a real server, to do to a connection what networks do. Listens on 127.0.0.1. */
export async function startTcpProxy(target: { host: string; port: number }): Promise<TcpProxy> {
  const links = new Set<Link>();
  const state: NetworkState = { stalled: false, delayMs: 0, bytesPerSecond: Number.POSITIVE_INFINITY };
  let refusing = false;
  let refused = 0;

  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    client.on('error', () => {});
    if (refusing) {
      refused++;
      client.resetAndDestroy();
      return;
    }
    const link = new Link(client, target, state, () => links.delete(link));
    links.add(link);
  });
  const port = await listen(server);

  return {
    port,
    get connections() {
      return links.size;
    },
    get refused() {
      return refused;
    },
    url(connectionString) {
      const url = new URL(connectionString);
      url.hostname = '127.0.0.1';
      url.port = String(port);
      return url.href;
    },
    cut() {
      for (const link of links) link.destroy();
    },
    refuse() {
      refusing = true;
    },
    accept() {
      refusing = false;
    },
    stall() {
      state.stalled = true;
    },
    resume() {
      state.stalled = false;
      for (const link of links) link.flush();
    },
    delayMs(milliseconds) {
      state.delayMs = milliseconds;
    },
    throttle(bytesPerSecond) {
      state.bytesPerSecond = bytesPerSecond;
    },
    async close() {
      refusing = true;
      for (const link of links) link.destroy();
      if (server.listening) await new Promise((closed) => server.close(closed));
    },
  };
}

interface NetworkState {
  stalled: boolean;
  delayMs: number;
  bytesPerSecond: number;
}

/** One client's connection and its counterpart to the server. */
class Link {
  readonly #sockets: [Socket, Socket];
  readonly #directions: [Direction, Direction];
  #brokenWhileStalled = false;

  constructor(client: Socket, target: { host: string; port: number }, state: NetworkState, onGone: () => void) {
    const upstream = createConnection({ ...target, allowHalfOpen: true, noDelay: true });
    upstream.on('error', () => {});
    this.#sockets = [client, upstream];
    this.#directions = [new Direction(client, upstream, state), new Direction(upstream, client, state)];
    for (const socket of this.#sockets) {
      socket.on('close', (hadError) => {
        // While nothing gets through, the other side cannot learn of it either.
        if (hadError && state.stalled) this.#brokenWhileStalled = true;
        else if (hadError) this.destroy();
        if (this.#sockets.every(({ destroyed }) => destroyed)) onGone();
      });
    }
  }

  destroy(): void {
    // Reset rather than closed in good order: the peer sees what it would see of a lost server.
    for (const socket of this.#sockets) if (!socket.destroyed) socket.resetAndDestroy();
  }

  flush(): void {
    if (this.#brokenWhileStalled) this.destroy();
    for (const direction of this.#directions) direction.flush();
  }
}

const heldBytesMax = 64 * 1024 * 1024;
/** A throttled direction forwards pieces of this size. */
const pieceBytes = 16_384;
/** Timers count in whole milliseconds and come late; below this the event loop is asked again and again instead. */
const timerSlackMs = 2;

/** Bytes on their way from one socket to the other; `null` is the end of the stream. */
class Direction {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #state: NetworkState;
  readonly #held: { due: number; chunk: Buffer | null }[] = [];
  #heldBytes = 0;
  /** When a throttled direction has forwarded all that it holds. */
  #busyUntil = 0;
  #cancelTimer: (() => void) | undefined;

  constructor(from: Socket, to: Socket, state: NetworkState) {
    this.#from = from;
    this.#to = to;
    this.#state = state;
    from.on('data', (chunk) => this.#take(chunk));
    from.on('end', () => this.#take(null));
    to.on('drain', () => from.resume());
    to.on('close', () => this.#cancelWaiting());
  }

  flush(): void {
    this.#cancelWaiting();
    while (!this.#state.stalled) {
      const first = this.#held[0];
      if (first === undefined) return;
      const waitMs = first.due - performance.now();
      if (waitMs > 0) {
        this.#flushAfter(waitMs);
        return;
      }
      this.#held.shift();
      this.#heldBytes -= first.chunk?.length ?? 0;
      this.#forward(first.chunk);
    }
  }

  #take(chunk: Buffer | null): void {
    const { stalled, delayMs, bytesPerSecond } = this.#state;
    const isThrottled = bytesPerSecond !== Number.POSITIVE_INFINITY;
    if (!stalled && delayMs === 0 && !isThrottled && this.#held.length === 0) {
      this.#forward(chunk);
      return;
    }
    this.#busyUntil = Math.max(this.#busyUntil, performance.now());
    for (const piece of isThrottled && chunk !== null ? inPieces(chunk) : [chunk]) {
      this.#busyUntil += ((piece?.length ?? 0) / bytesPerSecond) * 1_000;
      this.#held.push({ due: this.#busyUntil + delayMs, chunk: piece });
    }
    this.#heldBytes += chunk?.length ?? 0;
    if (this.#heldBytes > heldBytesMax) this.#from.pause();
    if (this.#cancelTimer === undefined) this.flush();
  }

  #cancelWaiting(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #flushAfter(waitMs: number): void {
    if (waitMs > timerSlackMs) {
      const timer = setTimeout(() => this.flush(), waitMs - timerSlackMs);
      this.#cancelTimer = () => clearTimeout(timer);
    } else {
      const immediate = setImmediate(() => this.flush());
      this.#cancelTimer = () => clearImmediate(immediate);
    }
  }

  #forward(chunk: Buffer | null): void {
    if (this.#to.destroyed) return;
    if (chunk === null) {
      this.#to.end();
      return;
    }
    if (!this.#to.write(chunk)) this.#from.pause();
    else if (this.#heldBytes < heldBytesMax) this.#from.resume();
  }
}

function inPieces(chunk: Buffer): Buffer[] {
  const count = Math.ceil(chunk.length / pieceBytes);
  return Array.from({ length: count }, (_, n) => chunk.subarray(n * pieceBytes, (n + 1) * pieceBytes));
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((ready, failed) => {
    server.once('error', failed);
    server.listen(0, '127.0.0.1', ready);
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
  return address.port;
}
