/** Any client that node-redis's `createClient` made. */
export interface RedisClientToCopy {
  readonly options?: object | undefined;
  duplicate(overrides?: never): unknown;
}

export type RedisArgument = string | Buffer;

/** The part of a node-redis client that is used here. */
interface RedisClient {
  readonly isReady: boolean;
  connect(): Promise<unknown>;
  destroy(): void;
  sendCommand(args: readonly RedisArgument[], options: object): Promise<unknown>;
  on(event: 'error', listener: () => void): unknown;
}

const answerTimeoutMs = 10_000;
/** Texts (`$`) as bytes, and maps (`%`) as lists: names and values in turn. */
const replyOptions = { typeMapping: { 36: Buffer, 37: Array } };

/** A connection of its own, with the options of the caller's client. It does not reconnect: entries that were lost with it come first. */
class RedisConnection {
  readonly #client: RedisClient;
  readonly #ended = new AbortController();

  constructor(toCopy: RedisClientToCopy) {
    const { socket } = (toCopy.options ?? {}) as { socket?: object };
    const overrides = {
      socket: { ...socket, reconnectStrategy: false, signal: this.#ended.signal },
      disableOfflineQueue: true,
      // Its own time limit would end a read that waits for entries.
      commandOptions: { timeout: 0 },
    };
    this.#client = toCopy.duplicate(overrides as never) as RedisClient;
    // Without a listener a broken connection would end the process. The commands in flight are rejected as well.
    this.#client.on('error', () => {});
  }

  get isReady(): boolean {
    return this.#client.isReady;
  }

  async connect(): Promise<void> {
    await this.#inTime(this.#client.connect(), answerTimeoutMs);
  }

  send(args: readonly RedisArgument[], waitMs = 0): Promise<unknown> {
    return this.#inTime(this.#client.sendCommand(args, replyOptions), waitMs + answerTimeoutMs);
  }

  kill(): void {
    this.#client.destroy();
    // destroy() forgets a socket that is not connected yet, which would stay open.
    this.#ended.abort();
  }

  /** A connection that does not answer in time is dead. */
  async #inTime<T>(answer: Promise<T>, timeoutMs: number): Promise<T> {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.kill();
    }, timeoutMs);
    try {
      return await answer;
    } catch (error) {
      throw isLate ? new Error(`Redis did not answer within ${timeoutMs} ms.`) : error;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** How the server knows a connection. Ids start again after a restart, so the address has to match, too. */
export interface RedisReader {
  readonly id: string;
  readonly address: string;
}

/** Two connections: one that waits for entries, and one for all other commands. */
export class RedisLink {
  readonly #reading: RedisConnection;
  readonly #commanding: RedisConnection;
  #reader: RedisReader | undefined;

  constructor(toCopy: RedisClientToCopy) {
    this.#reading = new RedisConnection(toCopy);
    this.#commanding = new RedisConnection(toCopy);
  }

  /** Whether commands can be sent. */
  get isReady(): boolean {
    return this.#commanding.isReady;
  }

  /** `undefined`: the user lacks the right to CLIENT. */
  get reader(): RedisReader | undefined {
    return this.#reader;
  }

  /** `before`: the reader that this one replaces. A server that did not notice its end would still deliver entries to it. */
  async open(before: RedisReader | undefined): Promise<void> {
    await Promise.all([this.#reading.connect(), this.#commanding.connect()]);
    const info = String((await unlessRefused(this.#reading.send(['CLIENT', 'INFO']))) ?? '');
    const [, id] = /(?:^|\s)id=(\d+)/.exec(info) ?? [];
    const [, address] = /(?:^|\s)addr=(\S+)/.exec(info) ?? [];
    if (id !== undefined && address !== undefined) this.#reader = { id, address };
    if (before !== undefined) {
      await unlessRefused(this.send(['CLIENT', 'KILL', 'ID', before.id, 'ADDR', before.address]));
    }
  }

  send(args: readonly RedisArgument[]): Promise<unknown> {
    return this.#commanding.send(args);
  }

  /** `waitMs`: how long the command itself waits. */
  read(args: readonly RedisArgument[], waitMs = 0): Promise<unknown> {
    return this.#reading.send(args, waitMs);
  }

  /** Ends a read that waits, if it has begun to. What it received by then is not lost. */
  async unblockRead(): Promise<void> {
    if (this.#reader === undefined) return this.#reading.kill();
    try {
      await this.send(['CLIENT', 'UNBLOCK', this.#reader.id]);
    } catch {
      this.#reading.kill();
    }
  }

  kill(): void {
    this.#reading.kill();
    this.#commanding.kill();
  }
}

/** A user may lack the right to a command that is not needed. */
async function unlessRefused(answer: Promise<unknown>): Promise<unknown> {
  try {
    return await answer;
  } catch (error) {
    if (isReply(error, 'NOPERM') || isReply(error, 'ERR')) return undefined;
    throw error;
  }
}

/** Whether the server answered with this error. */
export function isReply(error: unknown, code: string): boolean {
  return error instanceof Error && error.message.startsWith(`${code} `);
}
