import { createConnection, createServer, type Socket } from 'node:net';
import { type Deferred, deferred } from './wait.ts';

/** Which statements a fault is for. */
export interface StatementFilter {
  /** Part of the connection's application_name, e.g. 'results'. Default: every connection. */
  connection?: string;
  text: RegExp;
  /** Let this many matching statements pass first. Default 0. */
  after?: number;
}

/** A statement that was caught, and what may be done with it. */
export interface Caught {
  /** Resolves once it is caught: the request has not reached the server, or the server has executed it. */
  readonly caught: Promise<void>;
  /** Lets it go on. */
  release(): void;
  /** Breaks its connection, on both sides: it, or its answer, never arrives. */
  cut(): void;
}

export interface PostgresProxy {
  /** The same connection string, through the proxy. */
  url(connectionString: string): string;
  /** Keeps the next matching statement from the server. */
  holdRequest(filter: StatementFilter): Caught;
  /** Lets the server execute the next matching statement, to its commit, and keeps the answer from the client. */
  holdAnswer(filter: StatementFilter): Caught;
  /** Accepts the bytes of these connections, also of new ones, and forwards none. Neither side sees an error. */
  stall(connection: string): void;
  resume(connection: string): void;
  /** Drops only notifications, as a transaction pooler does: LISTEN fails without an error. */
  muteNotifications(muted: boolean): void;
  /** Resets these connections. New ones are taken. */
  cut(connection?: string): void;
  /** Resets these connections on the client's side only. What the client has sent still reaches the server. */
  cutClient(connection: string): void;
  /** New connections are reset at once until `accept()`. */
  refuse(): void;
  accept(): void;
  /** Names of prepared statements that clients made; a transaction pooler would lose them. */
  readonly namedStatements: readonly string[];
  /** How often a matching statement has passed so far. */
  count(filter: Pick<StatementFilter, 'connection' | 'text'>): number;
  /** How many bytes the server has sent on these connections, of those that are open. */
  bytesFromServer(connection: string): number;
  close(): Promise<void>;
}

interface Trap extends Caught {
  filter: StatementFilter;
  side: 'request' | 'answer';
  skipped: number;
  hit: Deferred<void>;
  connection: Connection | undefined;
  released: boolean;
}

interface ProxyState {
  traps: Trap[];
  stalled: Set<string>;
  muted: boolean;
  namedStatements: string[];
  statements: { connection: string; text: string }[];
}

/** A proxy that understands PostgreSQL's protocol, to break a connection at one certain statement. */
export async function startPostgresProxy(connectionString: string): Promise<PostgresProxy> {
  const target = new URL(connectionString);
  const state: ProxyState = { traps: [], stalled: new Set(), muted: false, namedStatements: [], statements: [] };
  const connections = new Set<Connection>();
  let refusing = false;
  const server = createServer({ noDelay: true }, (client) => {
    client.on('error', () => {});
    if (refusing) {
      client.resetAndDestroy();
      return;
    }
    const upstream = createConnection({ host: target.hostname, port: Number(target.port), noDelay: true });
    const connection = new Connection(client, upstream, state, () => connections.delete(connection));
    connections.add(connection);
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
  const { port } = address;
  const named = (part: string) => [...connections].filter(({ name }) => name.includes(part));

  return {
    url(given) {
      const url = new URL(given);
      url.hostname = '127.0.0.1';
      url.port = String(port);
      return url.href;
    },
    holdRequest: (filter) => addTrap(state, filter, 'request'),
    holdAnswer: (filter) => addTrap(state, filter, 'answer'),
    stall: (connection) => void state.stalled.add(connection),
    resume(connection) {
      state.stalled.delete(connection);
      for (const one of named(connection)) one.flush();
    },
    muteNotifications(muted) {
      state.muted = muted;
    },
    cut(connection = '') {
      for (const one of named(connection)) one.destroy();
    },
    cutClient(connection) {
      for (const one of named(connection)) one.destroyClient();
    },
    refuse() {
      refusing = true;
    },
    accept() {
      refusing = false;
    },
    namedStatements: state.namedStatements,
    count: ({ connection = '', text }) =>
      state.statements.filter((seen) => seen.connection.includes(connection) && text.test(seen.text)).length,
    bytesFromServer: (connection) => named(connection).reduce((sum, one) => sum + one.bytesFromServer, 0),
    async close() {
      refusing = true;
      for (const one of connections) one.destroy();
      await new Promise((closed) => server.close(closed));
    },
  };
}

function addTrap(state: ProxyState, filter: StatementFilter, side: Trap['side']): Caught {
  const hit = deferred();
  const trap: Trap = {
    filter,
    side,
    skipped: 0,
    hit,
    connection: undefined,
    released: false,
    caught: hit.promise,
    release() {
      trap.released = true;
      state.traps = state.traps.filter((other) => other !== trap);
      trap.connection?.flush();
    },
    cut() {
      trap.connection?.destroy();
      trap.release();
    },
  };
  state.traps.push(trap);
  return trap;
}

const readyForQuery = 'Z'.charCodeAt(0);
const notification = 'A'.charCodeAt(0);
const startupName = 'application_name\0';

/** One client's connection and its counterpart to the server, forwarded message by message. */
class Connection {
  readonly #client: Socket;
  readonly #upstream: Socket;
  readonly #state: ProxyState;
  /** The traps of what was sent up to each Sync whose ReadyForQuery has not come; the first stands for the startup. */
  readonly #unanswered: Trap[][] = [[]];
  #requests = Buffer.alloc(0);
  #answers = Buffer.alloc(0);
  #begun = false;
  /** The statement whose request is looked at, and kept back for now. */
  #parsing: { trap: Trap | undefined } | undefined;
  /** The texts of prepared statements, and the one that was prepared or looked at last. */
  readonly #prepared = new Map<string, string>();
  #parsed = '';
  /** The traps of statements since the last Sync: several may be sent under one. */
  #unsynced: Trap[] = [];
  #isHalfOpen = false;
  name = '';

  constructor(client: Socket, upstream: Socket, state: ProxyState, onGone: () => void) {
    this.#client = client;
    this.#upstream = upstream;
    this.#state = state;
    client.on('data', (chunk) => {
      this.#requests = Buffer.concat([this.#requests, chunk]);
      this.#forwardRequests();
    });
    upstream.on('data', (chunk) => {
      this.#answers = Buffer.concat([this.#answers, chunk]);
      this.#forwardAnswers();
    });
    for (const socket of [client, upstream]) {
      socket.on('error', () => {});
      socket.on('close', () => {
        // While stalled, neither side learns that the other is gone.
        if (this.#stalled || this.#isHalfOpen) return;
        this.destroy();
        onGone();
      });
    }
  }

  flush(): void {
    if (!this.#isHalfOpen && (this.#client.destroyed || this.#upstream.destroyed)) this.destroy();
    this.#forwardRequests();
    this.#forwardAnswers();
  }

  destroy(): void {
    for (const socket of [this.#client, this.#upstream]) if (!socket.destroyed) socket.resetAndDestroy();
  }

  destroyClient(): void {
    this.#isHalfOpen = true;
    this.#client.resetAndDestroy();
  }

  get bytesFromServer(): number {
    return this.#upstream.bytesRead;
  }

  get #stalled(): boolean {
    return [...this.#state.stalled].some((part) => this.name.includes(part));
  }

  #forwardRequests(): void {
    while (!this.#stalled) {
      const length = this.#begun ? messageLength(this.#requests, 1) : messageLength(this.#requests, 0);
      if (length === undefined) return;
      const message = this.#requests.subarray(0, length);
      if (!this.#begun) this.#begin(message);
      else if (!this.#look(message)) return;
      this.#requests = this.#requests.subarray(length);
      if (!this.#upstream.destroyed) this.#upstream.write(message);
    }
  }

  #begin(message: Buffer): void {
    const text = message.toString('latin1');
    const at = text.indexOf(startupName);
    if (at !== -1) this.name = text.slice(at + startupName.length, text.indexOf('\0', at + startupName.length));
    this.#begun = true;
  }

  /** Notes what a request is; false: it must not go on now. */
  #look(message: Buffer): boolean {
    const kind = String.fromCharCode(message[0] ?? 0);
    if (kind === 'P') {
      const [statement = '', text = ''] = message.toString('utf8', 5).split('\0');
      if (!this.#parse(text)) return false;
      if (statement !== '') {
        this.#state.namedStatements.push(statement);
        this.#prepared.set(statement, text);
      }
      this.#parsed = statement;
      return true;
    }
    if (kind === 'B') {
      const [, statement = ''] = message.toString('utf8', 5).split('\0');
      const isAnew = statement !== this.#parsed;
      if (isAnew && !this.#parse(this.#prepared.get(statement) ?? '')) return false;
      this.#parsed = '';
    }
    if (kind === 'Q' && !this.#parse(message.toString('utf8', 5).split('\0')[0] ?? '')) return false;
    if (kind === 'S' || kind === 'Q') {
      this.#unanswered.push(this.#unsynced);
      this.#unsynced = [];
    }
    return true;
  }

  #parse(text: string): boolean {
    if (this.#parsing === undefined) {
      this.#state.statements.push({ connection: this.name, text });
      this.#parsing = { trap: this.#trapFor(text) };
    }
    const { trap } = this.#parsing;
    if (trap?.side === 'request' && !trap.released) {
      trap.hit.resolve();
      return false;
    }
    if (trap) this.#unsynced.push(trap);
    this.#parsing = undefined;
    return true;
  }

  #trapFor(text: string): Trap | undefined {
    for (const trap of this.#state.traps) {
      const { connection = '', text: pattern, after = 0 } = trap.filter;
      if (trap.connection !== undefined || !this.name.includes(connection) || !pattern.test(text)) continue;
      if (trap.skipped++ < after) continue;
      trap.connection = this;
      return trap;
    }
    return undefined;
  }

  #forwardAnswers(): void {
    while (!this.#stalled) {
      const length = messageLength(this.#answers, 1);
      if (length === undefined) return;
      const trap = this.#unanswered[0]?.find(({ side, released }) => side === 'answer' && !released);
      if (trap) {
        // Only once ReadyForQuery is here has the server committed.
        if (this.#hasReady()) trap.hit.resolve();
        return;
      }
      const message = this.#answers.subarray(0, length);
      this.#answers = this.#answers.subarray(length);
      if (message[0] === readyForQuery) this.#unanswered.shift();
      if (message[0] === notification && this.#state.muted) continue;
      if (!this.#client.destroyed) this.#client.write(message);
    }
  }

  #hasReady(): boolean {
    for (let at = 0; ; ) {
      const length = messageLength(this.#answers.subarray(at), 1);
      if (length === undefined) return false;
      if (this.#answers[at] === readyForQuery) return true;
      at += length;
    }
  }
}

function messageLength(buffer: Buffer, typeBytes: number): number | undefined {
  if (buffer.length < typeBytes + 4) return undefined;
  const length = typeBytes + buffer.readInt32BE(typeBytes);
  return buffer.length < length ? undefined : length;
}

/** How to recognise the relay's statements. */
export const statement = {
  claim: /\.claim_(?:next|many)\(/,
  settle: /\.(?:fail_and_)?settle\(/,
  fail: /\.fail(?:_and_settle)?\(\$1/,
  register: /insert into \S+outbox_relays/,
  renew: /set heartbeat_at/,
  end: /ended_as = 'stopped'/,
  load: /select payload::text/,
  listen: /^listen/,
};
