import { createHash } from 'node:crypto';
import pg from 'pg';
import { errorText } from '../telemetry/error-text.ts';
import type { Logger } from '../telemetry/logging.ts';
import { SparseLog } from '../telemetry/logging.ts';
import { connectFirst, connectTimeoutMs, requireSession } from './connect.ts';
import type { Server, ServerList } from './connection-string.ts';
import { codedDatabaseError, isConnectionFailure } from './database-error.ts';
import { announcedPid, bytesReceived, destroy, endOrDestroy } from './driver-client.ts';
import type { ArrayQuery, Executor } from './executor.ts';
import { fixStatementSettings } from './statement-settings.ts';

export interface ReconnectingClientOptions {
  /** Tried in order, each time it connects, until one takes writes. */
  servers: ServerList;
  /** Shown in pg_stat_activity. */
  applicationName: string;
  /**
   * A connection that receives nothing for this long while a statement is in flight counts as dead. A large result may
   * take longer in total: every byte that arrives restarts the timeout.
   */
  queryTimeoutMs: number;
  /** How long a statement waits for a connection before it fails. Default: without limit. */
  connectWaitMs?: number;
  /** How long one attempt to connect may take. Default: `queryTimeoutMs`, at most 10,000. */
  connectTimeoutMs?: number;
  /** How long to wait before reconnect attempt `n` (from 1). Default `reconnectDelayMs`. */
  reconnectDelayMs?: (attempt: number) => number;
  logger: Logger;
  /** Runs on every new connection before anything else does, e.g. LISTEN. */
  onConnect?: (client: pg.Client) => Promise<void>;
  onLost?: (error: unknown) => void;
  /** Whether the connection is known to be one server session, not one of a pooler. Default: not known. */
  isSession?: () => boolean;
}

/** The server sent nothing for `queryTimeoutMs` while a statement was in flight. The statement may still run on the server. */
export class NoAnswerError extends Error {
  constructor(queryTimeoutMs: number) {
    super(`Connection terminated: PostgreSQL sent nothing for ${queryTimeoutMs} ms`);
  }
}

/** The part of `queryTimeoutMs` for which a statement waits for a lock. Routines have a limit of their own, 7 s. */
const lockTimeoutShare = 0.7;
/** How often the watchdog checks for progress within `queryTimeoutMs`. */
const looksPerTimeout = 4;

/** A prepared statement does not exist, exists already, or has another result type since a migration. */
const unpreparedCodes: ReadonlySet<unknown> = new Set(['26000', '42P05', '0A000']);

/** How long to wait before reconnect attempt `n` (from 1): doubling from 50 ms to 5 s, half of it at random. */
export function reconnectDelayMs(attempt: number, random: () => number = Math.random): number {
  const ceiling = Math.min(5_000, 50 * 2 ** Math.min(attempt - 1, 10));
  return ceiling / 2 + (ceiling / 2) * random();
}

/**
 * One connection to PostgreSQL that is reopened whenever it is lost. It never gives up and never repeats a statement: only
 * the caller knows whether that is safe. Statements that are sent while there is no connection wait for the next one.
 */
export class ReconnectingClient implements Executor {
  readonly #options: ReconnectingClientOptions;
  readonly #servers: ServerList;
  readonly #log = new SparseLog();
  #client: pg.Client | undefined;
  #connecting: Promise<pg.Client> | undefined;
  /** Why the last attempt to connect failed. */
  #connectError: unknown;
  /** Connecting and not usable yet; close() must not wait for it. */
  #opening: pg.Client | undefined;
  #connections = 0;
  #sessionPid: number | undefined;
  #inFlight = 0;
  /** When bytes last arrived, or when a statement was sent while none was in flight. */
  #lastSignAt = 0;
  /** How many bytes the connection had received when the watchdog last checked. */
  #bytesReceived: number | undefined;
  #watchdog: NodeJS.Timeout | undefined;
  #prepares = true;
  /** Settles when the last statement sent on a client without a pipeline is answered. */
  #turn: Promise<unknown> = Promise.resolve();
  readonly #names = new Map<string, string>();
  #closed = false;
  readonly #closing = new AbortController();

  constructor(options: ReconnectingClientOptions) {
    this.#options = options;
    this.#servers = options.servers;
  }

  get connected(): boolean {
    return this.#client !== undefined;
  }

  /** Whether a statement is in flight. */
  get busy(): boolean {
    return this.#inFlight > 0;
  }

  /** How many connections it has had. A new one may lead to another server, which may have replicated less. */
  get connections(): number {
    return this.#connections;
  }

  /**
   * The server process of the connection, if PostgreSQL itself answered the login. A pooler announces a process id of its own, or
   * none: then the statements may run in different sessions.
   */
  get sessionPid(): number | undefined {
    return this.#client && this.#sessionPid;
  }

  /** Resolves when there is a connection. */
  async whenConnected(): Promise<void> {
    if (!this.#client) await this.#connection();
  }

  /** Connects once and fails if that fails: at start, a wrong address should be reported, not retried. */
  async open(): Promise<void> {
    try {
      const client = await this.#connectOnce();
      if (this.#closed) throw this.#refuseClosed(client);
      this.#client = client;
    } catch (error) {
      throw codedDatabaseError(error);
    }
  }

  async query(text: string, values: unknown[] = []): Promise<{ rows: Record<string, unknown>[] }> {
    return this.#send({ text, values });
  }

  /**
   * The same with rows as arrays. A prepared statement saves 0.05 to 0.1 ms of parsing and planning. If there is a pooler
   * after all, the server refuses it before it runs anything.
   */
  readonly queryArrays: ArrayQuery = async (text, values, often = false) => {
    const query = { text, values, rowMode: 'array' as const };
    if (often && this.#prepares && this.#options.isSession?.()) {
      try {
        return await this.#send<unknown[]>({ ...query, name: this.#nameOf(text) });
      } catch (error) {
        if (!unpreparedCodes.has((error as { code?: unknown } | null)?.code)) throw error;
        this.#prepares = false;
      }
    }
    return this.#send<unknown[]>(query);
  };

  /** Derived from the text: sessions of a pooler may have prepared statements of other clients. */
  #nameOf(text: string): string {
    let name = this.#names.get(text);
    if (name === undefined) {
      name = `postcommit_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
      this.#names.set(text, name);
    }
    return name;
  }

  /** Starts to reconnect if there is no connection. Sends nothing. */
  ensure(): void {
    if (!this.#client && !this.#closed) this.#reconnect().catch(() => {});
  }

  /** Drops the connection, as if it had been lost. */
  disconnect(reason: Error): void {
    if (this.#client) this.#drop(this.#client, reason);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#closing.abort();
    clearTimeout(this.#watchdog);
    if (this.#opening) destroy(this.#opening);
    const client = this.#client;
    this.#client = undefined;
    if (client) await endOrDestroy(client);
  }

  async #send<Row extends pg.QueryResultRow>(query: pg.QueryConfig): Promise<pg.QueryResult<Row>> {
    const client = this.#client ?? (await this.#connection());
    if (this.#inFlight++ === 0) this.#lastSignAt = performance.now();
    this.#watchdog ??= this.#watch(this.#options.queryTimeoutMs / looksPerTimeout);
    try {
      return await this.#query<Row>(client, query);
    } catch (error) {
      if (isConnectionFailure(error) || isReadOnly(error)) this.#drop(client, error);
      throw error;
    } finally {
      this.#inFlight--;
      this.#lastSignAt = performance.now();
    }
  }

  /** Sends one at a time if the client has no pipeline (pg before 8.23). pg would queue them too, but warns from 8.19 on. */
  #query<Row extends pg.QueryResultRow>(client: pg.Client, query: pg.QueryConfig): Promise<pg.QueryResult<Row>> {
    if ((client as { pipeline?: boolean }).pipeline === true) return client.query<Row>(query);
    const turn = this.#turn.then(() => client.query<Row>(query));
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /**
   * Drops a connection on which nothing has arrived for too long. pg's own query_timeout would keep the connection, waiting
   * for the late answer. One timer serves all statements, which are answered in order: one per statement is garbage.
   */
  #watch(afterMs: number): NodeJS.Timeout {
    return setTimeout(() => {
      this.#watchdog = undefined;
      const client = this.#client;
      if (this.#inFlight === 0 || !client) return;
      const { queryTimeoutMs } = this.#options;
      const now = performance.now();
      const received = bytesReceived(client);
      if (received !== this.#bytesReceived) this.#lastSignAt = now;
      this.#bytesReceived = received;
      const leftMs = this.#lastSignAt + queryTimeoutMs - now;
      if (leftMs > 0) {
        this.#watchdog = this.#watch(Math.min(leftMs, queryTimeoutMs / looksPerTimeout));
        return;
      }
      const error = new NoAnswerError(queryTimeoutMs);
      destroy(client, error); // With the error, so that the statements in flight fail with it.
      this.#drop(client, error);
    }, afterMs).unref();
  }

  #connectOnce(): Promise<pg.Client> {
    return connectFirst(this.#servers, (server) => this.#connectTo(server));
  }

  async #connectTo({ config }: Server): Promise<pg.Client> {
    if (this.#closed) throw this.#refuseClosed();
    const client = new pg.Client({
      ...config,
      application_name: this.#options.applicationName,
      connectionTimeoutMillis: connectTimeoutMs(
        this.#servers,
        this.#options.connectTimeoutMs ?? Math.min(10_000, this.#options.queryTimeoutMs),
      ),
      keepAlive: true,
      types: { getTypeParser },
      pipeline: true, // Concurrent statements are sent at once instead of queueing in the client. pg before 8.23 ignores it.
    });
    client.on('error', (error) => this.#drop(client, error));
    client.on('end', () => this.#drop(client, new Error('Connection ended')));
    this.#opening = client;
    let timer: NodeJS.Timeout | undefined;
    try {
      await client.connect();
      // connectionTimeoutMillis covers connect() only. A network that goes silent now must not block forever either.
      timer = setTimeout(() => destroy(client), this.#options.queryTimeoutMs);
      const session = await requireSession(client, this.#servers.attributes);
      this.#sessionPid = announcedPid(client) === session.pid ? session.pid : undefined;
      fixStatementSettings(client, session, this.#options.queryTimeoutMs * lockTimeoutShare);
      await this.#options.onConnect?.(client);
      this.#connections++;
      this.#turn = Promise.resolve();
      return client;
    } catch (error) {
      destroy(client);
      throw error;
    } finally {
      clearTimeout(timer);
      this.#opening = undefined;
    }
  }

  async #connection(): Promise<pg.Client> {
    const { connectWaitMs } = this.#options;
    if (connectWaitMs === undefined) return this.#reconnect();
    let timer: NodeJS.Timeout | undefined;
    const tooLate = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        const cause = this.#connectError === undefined ? '' : ` (${String(this.#connectError)})`;
        reject(new Error(`Connection terminated: could not connect to PostgreSQL within ${connectWaitMs} ms${cause}`));
      }, connectWaitMs);
    });
    const connected = this.#reconnect();
    connected.catch(() => {}); // Reconnecting continues after the statement has failed.
    return Promise.race([connected, tooLate]).finally(() => clearTimeout(timer));
  }

  #reconnect(): Promise<pg.Client> {
    this.#connecting ??= this.#reconnectForever().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  async #reconnectForever(): Promise<pg.Client> {
    for (let attempt = 1; ; attempt++) {
      if (this.#closed) throw this.#refuseClosed();
      try {
        const client = await this.#connectOnce();
        if (this.#closed) throw this.#refuseClosed(client);
        this.#client = client;
        if (attempt > 1) this.#options.logger.info({ attempt }, 'reconnected to the database');
        return client;
      } catch (error) {
        if (this.#closed) continue;
        this.#connectError = error;
        this.#log.say('reconnect', (suppressed) =>
          this.#options.logger.warn({ attempt, suppressed, error: errorText(error) }, 'database unreachable, retrying'),
        );
        await this.#pause((this.#options.reconnectDelayMs ?? reconnectDelayMs)(attempt));
      }
    }
  }

  #refuseClosed(client?: pg.Client): Error {
    if (client) destroy(client);
    return new Error('Connection terminated: the relay is closed');
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#closing.signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#closing.signal.addEventListener('abort', done);
    });
  }

  #drop(client: pg.Client, error: unknown): void {
    destroy(client);
    if (this.#client !== client) return;
    this.#client = undefined;
    if (this.#closed) return;
    this.#log.say('lost', (suppressed) =>
      this.#options.logger.warn({ suppressed, error: errorText(error) }, 'lost a database connection'),
    );
    this.#options.onLost?.(error);
  }
}

/** The server has become a standby. After the failover the same address may lead to the new primary. */
function isReadOnly(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '25006';
}

const asText = (value: string): string => value;
/** Parsers for the types that our statements return, whatever the application has set globally. */
const parsers = new Map<number, (value: string) => unknown>([
  [16, (value) => value === 't'], // bool
  [20, asText], // int8
  [23, Number], // int4
  [25, asText], // text
  [701, Number], // float8
  [2950, asText], // uuid
]);

const getTypeParser = ((oid: number, format?: 'text') =>
  parsers.get(oid) ?? pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser;
