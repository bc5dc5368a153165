import { createServer, type Socket } from 'node:net';
import pg from 'pg';

export interface TransactionPooler {
  /** The same connection string, through the pooler. */
  url(connectionString: string): string;
  /** Transactions carried so far, by server connection. */
  readonly carried: readonly number[];
  /** Every transaction from now on goes to another server, as after a failover. The clients' connections stay. */
  switchTo(connectionString: string): Promise<void>;
  close(): Promise<void>;
}

/** A connection to the server. The client with an open transaction owns it. */
interface ServerSide {
  index: number;
  socket: Socket;
  owner: ClientSide | undefined;
  lastUsed: number;
}

/**
 * What PgBouncer does in transaction mode: many clients share a few server connections, and each transaction gets the
 * one that has rested longest, so that hardly two in a row meet the same session.
 */
export async function startTransactionPooler(connectionString: string, size = 2): Promise<TransactionPooler> {
  const clients = new Set<ClientSide>();
  const carried = Array<number>(size).fill(0);
  const connectAll = (to: string) => Promise.all(carried.map((_none, index) => connectServer(to, index)));
  let servers = await connectAll(connectionString);
  let clock = 0;
  const pool: Pool = {
    acquire(owner) {
      const [free] = servers.filter((server) => !server.owner).sort((a, b) => a.lastUsed - b.lastUsed);
      if (free === undefined) return undefined;
      free.owner = owner;
      free.lastUsed = ++clock;
      carried[free.index] = (carried[free.index] ?? 0) + 1;
      return free;
    },
    release(server) {
      server.owner = undefined;
      for (const client of clients) client.proceed();
    },
  };
  const listener = createServer({ noDelay: true }, (socket) => {
    const client = new ClientSide(socket, pool);
    clients.add(client);
    socket.on('close', () => clients.delete(client));
  });
  await new Promise<void>((ready) => listener.listen(0, '127.0.0.1', ready));
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('the pooler has no port');

  return {
    carried,
    url(given) {
      const url = new URL(given);
      url.hostname = '127.0.0.1';
      url.port = String(address.port);
      return url.href;
    },
    async switchTo(other) {
      // Those in a transaction end it where they began it, and are not taken again.
      servers = await connectAll(other);
    },
    async close() {
      for (const client of clients) client.socket.destroy();
      for (const { socket } of servers) socket.destroy();
      await new Promise((closed) => listener.close(closed));
    },
  };
}

async function connectServer(connectionString: string, index: number): Promise<ServerSide> {
  // The driver logs in; from then on its socket is ours.
  const client = new pg.Client({ connectionString, application_name: `pooler ${index}` });
  await client.connect();
  const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
  stream.removeAllListeners();
  stream.on('error', () => {});
  const server: ServerSide = { index, socket: stream, owner: undefined, lastUsed: 0 };
  const messages = new MessageReader(1);
  // What a session sends while it has no owner, such as a notification, is dropped.
  stream.on('data', (chunk: Buffer) => {
    for (const message of messages.read(chunk)) server.owner?.answer(message);
  });
  return server;
}

interface Pool {
  acquire(owner: ClientSide): ServerSide | undefined;
  release(server: ServerSide): void;
}

class ClientSide {
  readonly socket: Socket;
  readonly #pool: Pool;
  readonly #startup = new MessageReader(0);
  readonly #messages = new MessageReader(1);
  readonly #unsent: Buffer[] = [];
  #server: ServerSide | undefined;
  #begun = false;
  /** Statements sent whose ReadyForQuery has not come. */
  #unanswered = 0;

  constructor(socket: Socket, pool: Pool) {
    this.socket = socket;
    this.#pool = pool;
    socket.on('error', () => {});
    socket.on('data', (chunk) => this.#take(chunk));
  }

  /** Sends on what waits, if a server connection is free. */
  proceed(): void {
    if (this.#unsent.length === 0) return;
    this.#server ??= this.#pool.acquire(this);
    if (this.#server === undefined) return;
    for (const message of this.#unsent.splice(0)) {
      if (isKind(message, 'S') || isKind(message, 'Q')) this.#unanswered++;
      this.#server.socket.write(message);
    }
  }

  answer(message: Buffer): void {
    this.socket.write(message);
    if (!isKind(message, 'Z')) return;
    this.#unanswered--;
    const outsideOfTransaction = String.fromCharCode(message[5] ?? 0) === 'I';
    if (this.#unanswered > 0 || !outsideOfTransaction || this.#server === undefined) return;
    const server = this.#server;
    this.#server = undefined;
    this.#pool.release(server);
  }

  #take(chunk: Buffer): void {
    if (!this.#begun) {
      const [startup] = this.#startup.read(chunk);
      if (startup === undefined) return;
      this.#begun = true;
      // AuthenticationOk, and ReadyForQuery outside of a transaction.
      this.socket.write(Buffer.from([82, 0, 0, 0, 8, 0, 0, 0, 0, 90, 0, 0, 0, 5, 73]));
      return;
    }
    for (const message of this.#messages.read(chunk)) {
      if (isKind(message, 'X')) this.socket.end();
      else this.#unsent.push(message);
    }
    this.proceed();
  }
}

/** Cuts a stream into messages: a type of one byte, except at startup, then a length that counts itself. */
class MessageReader {
  readonly #typeBytes: number;
  #unread = Buffer.alloc(0);

  constructor(typeBytes: 0 | 1) {
    this.#typeBytes = typeBytes;
  }

  read(chunk: Buffer): Buffer[] {
    this.#unread = Buffer.concat([this.#unread, chunk]);
    const messages: Buffer[] = [];
    while (this.#unread.length >= this.#typeBytes + 4) {
      const length = this.#typeBytes + this.#unread.readInt32BE(this.#typeBytes);
      if (this.#unread.length < length) break;
      messages.push(this.#unread.subarray(0, length));
      this.#unread = this.#unread.subarray(length);
    }
    return messages;
  }
}

function isKind(message: Buffer, kind: string): boolean {
  return message[0] === kind.charCodeAt(0);
}
