import type { RedisClientOptions } from 'redis';
import type { RedisClientToCopy } from '../consumers/redis.ts';
import { PostcommitError } from '../errors.ts';
import { cutReason, isUntrustedCertificate, reasonOf } from './failure.ts';
import { importClient } from './import-client.ts';
import { InFlightCalls } from './in-flight-calls.ts';
import { sendInKeyOrder } from './key-order.ts';
import type { Message, Publisher, PublisherCapabilities, PublishOutcome } from './publisher.ts';
import { delivered } from './publisher.ts';
import { readOptions } from './publisher-options.ts';
import { type RedisAddress, readRedisUrl } from './redis/address.ts';
import { type CreateRedisClient, lostReason, type RedisClient, RedisConnector, replyCode } from './redis/connection.ts';
import { isPort } from './server-url.ts';

export type { RedisClientToCopy, RedisConsumerOptions } from '../consumers/redis.ts';
export { consumeRedis } from '../consumers/redis.ts';

export interface RedisOptions {
  /** `redis[s]://[[user][:password]@]host[:port][/database]`; `rediss` is TLS. Default `redis://localhost:6379`. Also `unix://[[user][:password]@]/path[?db=number]`. */
  url?: string;
  /** Passed to node-redis: `host`, `port`, `path`, `tls`, `ca`, `cert`, `key`, `servername` and so on. */
  socket?: RedisClientOptions['socket'];
  /** ACL user. Default: Redis's `default`. */
  username?: string;
  /** Its password. Default none. */
  password?: string;
  /** Passed to node-redis, for credentials that change. */
  credentialsProvider?: RedisClientOptions['credentialsProvider'];
  /** Number of the database. Default 0. */
  database?: number;
  /** What CLIENT LIST calls the connection. Default none. */
  name?: string;
  /**
   * A node-redis client of yours, instead of the options above. It is left alone: its options are taken for a connection
   * of the publisher's own (`client.duplicate()`).
   */
  client?: RedisClientToCopy;
  /** Entries a stream keeps: older ones are deleted, read or not. Default: all. */
  maxLen?: number;
  /** Keep `maxLen` to the entry, which costs Redis more than `~`, its approximation. Default `false`. */
  maxLenExact?: boolean;
  /**
   * Bytes of one entry at most: a larger event is rejected before it is sent. Must not exceed the server's
   * `proto-max-bulk-len`, over which Redis cuts the connection. Default 8,388,608.
   */
  messageBytesMax?: number;
  /** How long opening a connection may take, login included. Default 5,000. */
  connectTimeoutMs?: number;
}

const batchSizeMax = 250;
/** How long `close` waits for calls in flight. */
const flushTimeoutMs = 5_000;

const capabilities: PublisherCapabilities = {
  batchSizeMax,
  batchBytesMax: 8 * 1024 * 1024,
  batchesInFlightMax: 4,
  ordered: true,
  keyRuns: false,
  deduplicates: false,
  cloudEventsPrefix: 'ce_',
};

/**
 * Publishes to Redis Streams: each event is an entry of the stream that its topic names, with the fields `id` (of the
 * event), `type`, `key`, `content-type`, `header:<name>` for each header, and `body`.
 *
 * @example
 * import { redis } from 'postcommit/redis';
 *
 * const events = redis({ url: 'rediss://relay:secret@redis.example:6380', maxLen: 1_000_000 });
 */
export function redis(options: RedisOptions = {}): Publisher {
  return new RedisPublisher(resolve(options));
}

interface ResolvedRedisOptions {
  create: CreateRedisClient;
  keyPrefix: string;
  /** `MAXLEN ~ 1000`, where streams are trimmed. */
  trimming: readonly string[];
  messageBytesMax: number;
  connectTimeoutMs: number;
}

const connectionOptions = ['url', 'socket', 'username', 'password', 'credentialsProvider', 'database', 'name'] as const;

function resolve(given: RedisOptions): ResolvedRedisOptions {
  const read = readOptions('redis', given, [
    ...connectionOptions,
    'client',
    'maxLen',
    'maxLenExact',
    'messageBytesMax',
    'connectTimeoutMs',
  ]);
  const address = readAddress(given, read.text('url'), read.fail);
  read.whole('database', 0, 0, 999_999_999);
  const both = given.client && connectionOptions.find((name) => given[name] !== undefined);
  if (both) throw read.fail(`client and ${both} exclude each other.`);
  if (given.client && typeof given.client.duplicate !== 'function') {
    throw read.fail('client must be a client of the package redis.');
  }
  if (given.maxLenExact !== undefined && given.maxLen === undefined) throw read.fail('maxLenExact needs maxLen.');
  const exact = read.flag('maxLenExact', false);
  return {
    create: clientFactory(given, address),
    // Commands are sent as they are, so the client does not put it before the stream's name.
    keyPrefix: String((given.client?.options as RedisClientOptions | undefined)?.keyPrefix ?? ''),
    trimming:
      given.maxLen === undefined ? [] : ['MAXLEN', exact ? '=' : '~', String(read.whole('maxLen', 1, 1, 2 ** 48))],
    messageBytesMax: read.whole('messageBytesMax', 8 * 1024 * 1024, 1, 512 * 1024 * 1024),
    connectTimeoutMs: read.whole('connectTimeoutMs', 5_000, 1, 600_000),
  };
}

/** Reads the URL. Errors do not quote it: it may hold a password. */
function readAddress(
  { socket }: RedisOptions,
  url: string | undefined,
  fail: (detail: string) => PostcommitError,
): RedisAddress | undefined {
  const { port, tls } = (socket ?? {}) as { port?: unknown; tls?: unknown };
  if (port !== undefined && !isPort(port)) throw fail('socket.port must be a whole number from 1 to 65535.');
  if (url === undefined) return undefined;
  const address = readRedisUrl(url);
  if (address === undefined) {
    const form =
      'redis[s]://[[user][:password]@]host[:port][/database] or unix://[[user][:password]@]/path[?db=number]';
    throw fail(`url must be ${form}, with special characters percent-encoded.`);
  }
  if (tls !== undefined && tls !== address.socket.tls) throw fail('url and socket.tls contradict each other.');
  return address;
}

function clientFactory(given: RedisOptions, address: RedisAddress | undefined): CreateRedisClient {
  return async (ended) => {
    // Copies: node-redis writes into the options it is given.
    const base = (given.client?.options ?? given) as RedisClientOptions;
    const overrides = {
      socket: {
        ...base.socket,
        ...address?.socket,
        reconnectStrategy: false,
        signal: ended,
      } as RedisClientOptions['socket'],
      disableOfflineQueue: true,
      // Its default is a timer of its own for every command, which halves what a connection carries.
      commandOptions: { timeout: 0 },
    };
    if (given.client) {
      return given.client.duplicate(overrides as never) as RedisClient;
    }
    const { createClient } = await importClient('redis', () => import('redis'));
    const wanted = { ...given, ...address, url: undefined };
    const chosen = Object.fromEntries(
      connectionOptions.map((name) => [name, wanted[name]]).filter(([, value]) => value),
    );
    return createClient({ ...chosen, ...overrides }) as unknown as RedisClient;
  };
}

class RedisPublisher implements Publisher {
  readonly kind = 'redis';
  readonly capabilities = capabilities;
  readonly #options: ResolvedRedisOptions;
  readonly #connector: RedisConnector;
  readonly #calls = new InFlightCalls();
  #closed = false;

  constructor(options: ResolvedRedisOptions) {
    this.#options = options;
    this.#connector = new RedisConnector(options.create, options.connectTimeoutMs);
  }

  async connect(signal: AbortSignal): Promise<void> {
    this.#closed = false;
    try {
      await this.#connector.get(signal);
    } catch (error) {
      if (error instanceof PostcommitError) throw error;
      const code = refuses(error) ? 'POSTCOMMIT_E_DESTINATION_REFUSED' : 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE';
      throw new PostcommitError(code, `redis: ${reasonOf(error)}`, { cause: error });
    }
  }

  publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    return this.#calls.add(this.#publish(batch, signal));
  }

  async #publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const away = (error: unknown) => batch.map(() => unavailable(reasonOf(error)));
    try {
      return await this.#withClient(signal, async (client) => {
        let renew = false;
        const outcomes = await sendInKeyOrder(batch, batch.length, (message) => {
          const entry = toEntry(message, this.#options);
          if ('kind' in entry) return Promise.resolve(entry);
          return client.sendCommand(entry.command).then(asDelivered, (error) => {
            // After a failover the name may resolve to another server; the old connection does not follow.
            renew ||= replyCode(error) === 'READONLY' || replyCode(error) === 'MASTERDOWN';
            return signal.aborted ? unavailable('Redis did not answer in time.') : outcomeOf(error, message.topic);
          });
        });
        if (renew) this.#connector.drop();
        return outcomes;
      });
    } catch (error) {
      return away(error);
    }
  }

  async health(signal: AbortSignal): Promise<void> {
    await this.#withClient(signal, (client) => client.sendCommand(['PING']));
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#calls.settled(flushTimeoutMs);
    this.#connector.drop();
  }

  /** Closes the connection when the signal is aborted: what it has not sent yet must never arrive. */
  async #withClient<T>(signal: AbortSignal, work: (client: RedisClient) => Promise<T>): Promise<T> {
    if (this.#closed) throw new Error('The publisher is closed.');
    const { client, kill } = await this.#connector.get(signal);
    signal.addEventListener('abort', kill, { once: true });
    try {
      return await work(client);
    } finally {
      signal.removeEventListener('abort', kill);
    }
  }
}

const asDelivered = () => delivered;

function toEntry(message: Message, options: ResolvedRedisOptions): { command: (string | Buffer)[] } | PublishOutcome {
  if (typeof message.topic !== 'string' || message.topic === '') {
    return { kind: 'failed', reason: 'The route names no stream.' };
  }
  const { body, key } = message;
  const command: unknown[] = ['XADD', options.keyPrefix + message.topic, ...options.trimming, '*'];
  command.push('id', message.eventId, 'type', message.eventType);
  if (key !== null) command.push('key', key);
  command.push('content-type', message.contentType);
  for (const name in message.headers) command.push(`header:${name}`, message.headers[name]);
  command.push('body', body instanceof Uint8Array ? Buffer.from(body.buffer, body.byteOffset, body.byteLength) : body);
  let bytes = 0;
  for (const [index, part] of command.entries()) {
    // The client would fail the command as if the connection were broken, time and again.
    if (typeof part !== 'string' && !Buffer.isBuffer(part)) {
      return {
        kind: 'rejected',
        reason: cutReason(`The field ${command[index - 1]} is not a text but ${typeof part}.`),
      };
    }
    bytes += Buffer.byteLength(part);
  }
  if (bytes > options.messageBytesMax) {
    const reason = `The entry has ${bytes} bytes; messageBytesMax allows ${options.messageBytesMax}.`;
    return { kind: 'rejected', reason };
  }
  return { command: command as (string | Buffer)[] };
}

/** The server works, but cannot take writes for now. */
const passing = /^(?:OOM|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|MISCONF|NOREPLICAS|NOAUTH|WRONGPASS)$/;

function outcomeOf(error: unknown, stream: string): PublishOutcome {
  const code = replyCode(error);
  if (code === undefined) return unavailable(lostReason(error));
  const words = reasonOf(error);
  if (passing.test(code) || /max number of clients/.test(words)) return unavailable(words);
  if (/Protocol error: invalid bulk length/.test(words)) return { kind: 'rejected', reason: words };
  return { kind: 'failed', reason: cutReason(`Stream ${stream.slice(0, 100)}: ${words}`) };
}

/** Whether the login failed in a way that waiting does not fix. */
function refuses(error: unknown): boolean {
  if (isUntrustedCertificate(error)) return true;
  const code = replyCode(error);
  if (code === undefined) return false;
  return (
    /^(?:NOAUTH|WRONGPASS|NOPERM)$/.test(code) || /invalid password|DB index is out of range/i.test(reasonOf(error))
  );
}

function unavailable(reason: string): PublishOutcome {
  return { kind: 'unavailable', reason };
}
