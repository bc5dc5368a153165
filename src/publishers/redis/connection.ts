import type { RedisArgument } from 'redis';
import { cutReason, reasonOf, untilAborted } from '../failure.ts';

/** The part of a node-redis client that is used here. */
export interface RedisClient {
  readonly isReady: boolean;
  connect(): Promise<unknown>;
  destroy(): void;
  sendCommand(args: readonly RedisArgument[]): Promise<unknown>;
  on(event: 'error', listener: (error: Error) => void): unknown;
}

/** Creates a client that does not reconnect, and whose socket is closed when the signal is aborted. */
export type CreateRedisClient = (ended: AbortSignal) => Promise<RedisClient>;

export interface RedisConnection {
  readonly client: RedisClient;
  /** Closes it at once. Commands without an answer are rejected, and unsent ones are never sent. */
  kill(): void;
}

/** How the server knows a connection. Ids start again after a restart, so the address has to match, too. */
interface Identity {
  readonly id: string;
  readonly address: string;
}

const fencesMax = 16;

/**
 * Keeps one connection, and opens a new one on demand when it broke. The client's own reconnect is not used: it never
 * stops, and sends waiting commands whose outcome was returned as failed long before.
 */
export class RedisConnector {
  readonly #create: CreateRedisClient;
  readonly #connectTimeoutMs: number;
  #opening: Promise<RedisConnection> | undefined;
  #kill: (() => void) | undefined;
  /** Connections that may have left commands at the server which it has not read yet. */
  #fences: Identity[] = [];

  constructor(create: CreateRedisClient, connectTimeoutMs: number) {
    this.#create = create;
    this.#connectTimeoutMs = connectTimeoutMs;
  }

  /** The connection, opened if there is none. Attempts are shared, and each caller waits as long as its own signal. */
  async get(signal: AbortSignal): Promise<RedisConnection> {
    const current = this.#opening;
    if (current !== undefined) {
      const connection = await untilAborted(current, signal);
      if (connection.client.isReady) return connection;
      if (this.#opening === current) this.#opening = undefined;
    }
    this.#opening ??= this.#open();
    return await untilAborted(this.#opening, signal);
  }

  /** Ends the connection, also one that is being opened. The next `get` opens a new one. */
  drop(): void {
    this.#opening = undefined;
    this.#kill?.();
  }

  #open(): Promise<RedisConnection> {
    const opening = this.#connect();
    opening.catch(() => {
      if (this.#opening === opening) this.#opening = undefined;
    });
    return opening;
  }

  async #connect(): Promise<RedisConnection> {
    const ended = new AbortController();
    let client: RedisClient | undefined;
    const kill = () => {
      client?.destroy();
      // destroy() forgets a socket that is not connected yet, which would stay open.
      ended.abort();
    };
    this.#kill = kill;
    client = await this.#create(ended.signal);
    // Without a listener a broken connection would end the process. The commands in flight are rejected as well.
    client.on('error', () => {});
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      kill();
    }, this.#connectTimeoutMs);
    try {
      if (ended.signal.aborted) throw new Error('The publisher was closed.');
      await client.connect();
      const identity = await identify(client);
      await this.#raiseFences(client);
      if (identity) this.#fences = [...this.#fences, identity].slice(-fencesMax);
      return { client, kill };
    } catch (error) {
      kill();
      throw late ? new Error(`Redis did not answer within ${this.#connectTimeoutMs} ms.`) : error;
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * A server that hung may still have commands of earlier connections to read. Their outcome was returned as not
   * delivered; if the server ran them after what is sent now, an event would follow its successor.
   */
  async #raiseFences(client: RedisClient): Promise<void> {
    const fences = this.#fences;
    const kills = fences.map(({ id, address }) =>
      unlessRefused(client.sendCommand(['CLIENT', 'KILL', 'ID', id, 'ADDR', address])),
    );
    await Promise.all(kills);
    this.#fences = this.#fences.filter((fence) => !fences.includes(fence));
  }
}

async function identify(client: RedisClient): Promise<Identity | undefined> {
  const info = String((await unlessRefused(client.sendCommand(['CLIENT', 'INFO']))) ?? '');
  const id = /(?:^|\s)id=(\d+)/.exec(info)?.[1];
  const address = /(?:^|\s)addr=(\S+)/.exec(info)?.[1];
  return id === undefined || address === undefined ? undefined : { id, address };
}

/** A user may lack the right to CLIENT, and an old server the command: then there is no fence. */
async function unlessRefused(answer: Promise<unknown>): Promise<unknown> {
  try {
    return await answer;
  } catch (error) {
    if (replyCode(error) === undefined) throw error;
    return undefined;
  }
}

/** The first word of the server's error reply, e.g. `WRONGTYPE`; undefined where the server did not answer. */
export function replyCode(error: unknown): string | undefined {
  // Not by class: the caller's client may come from another copy of the package.
  if (!(error instanceof Error) || 'code' in error) return undefined;
  return /^[A-Z]{2,}(?= |$)/.exec(error.message)?.[0];
}

/** The reason for a broken connection: the error alone does not say what happened to the message. */
export function lostReason(error: unknown): string {
  return cutReason(`The connection to Redis was lost: ${reasonOf(error)}`);
}
