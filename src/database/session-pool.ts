import pg from 'pg';
import { connectFirst, connectTimeoutMs, requireSession } from './connect.ts';
import type { Server, ServerList } from './connection-string.ts';
import { announcedPid, destroy, endOrDestroy } from './driver-client.ts';

export interface SessionPoolOptions {
  /** Tried in order for each new session, until one takes writes. */
  servers: ServerList;
  /** Shown in pg_stat_activity. */
  applicationName: string;
}

/** A session of the pool, with the time limits that the server, the role or the connection options set for it. 0: none. */
export interface PooledSession {
  readonly client: pg.Client;
  /** Its server process, if PostgreSQL itself answered the login and not a pooler. */
  readonly pid: number | undefined;
  readonly statementTimeoutMs: number;
  readonly idleTimeoutMs: number;
}

/** How long one attempt to connect may take. */
const connectMsMax = 10_000;
/** A session that was not used for this long is closed. */
const idleMs = 10_000;

const limitsSql = `
select (select s.setting::float8 from pg_catalog.pg_settings s where s.name = 'statement_timeout') as statement,
       (select s.setting::float8 from pg_catalog.pg_settings s where s.name = 'idle_in_transaction_session_timeout') as idle`;

/**
 * Sessions for transactions of the application, with the settings that its own connections have. Callers limit how many are in use.
 * Unlike `pg.Pool` it looks for the primary again with each new session.
 */
export class SessionPool {
  readonly #options: SessionPoolOptions;
  readonly #idle: { session: PooledSession; timer: NodeJS.Timeout }[] = [];
  readonly #all = new Set<pg.Client>();
  #closed = false;

  constructor(options: SessionPoolOptions) {
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Whether the session is of use: it was neither lost nor discarded. */
  has({ client }: PooledSession): boolean {
    return this.#all.has(client);
  }

  /** Rejects when no server can be reached, or none takes writes. */
  async acquire(): Promise<PooledSession> {
    const idle = this.#idle.pop();
    if (idle) {
      clearTimeout(idle.timer);
      return idle.session;
    }
    return connectFirst(this.#options.servers, (server) => this.#connect(server));
  }

  /** Takes a session back that is in no transaction. */
  release(session: PooledSession): void {
    if (this.#closed || !this.has(session)) {
      this.discard(session);
      return;
    }
    const timer = setTimeout(() => {
      this.#forget(session.client);
      void endOrDestroy(session.client);
    }, idleMs).unref();
    this.#idle.push({ session, timer });
  }

  /** Closes a session at once. Statements in flight fail, and the server rolls back when it notices. */
  discard({ client }: PooledSession, reason?: Error): void {
    this.#forget(client);
    destroy(client, reason);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const clients = [...this.#all];
    for (const client of clients) this.#forget(client);
    await Promise.all(clients.map((client) => endOrDestroy(client)));
  }

  async #connect({ config }: Server): Promise<PooledSession> {
    if (this.#closed) throw new Error('Connection terminated: the relay is closed');
    const { servers, applicationName } = this.#options;
    const client = new pg.Client({
      ...config,
      application_name: applicationName,
      connectionTimeoutMillis: connectTimeoutMs(servers, connectMsMax),
      keepAlive: true,
    });
    // The statement in flight fails too. Without a listener, 'error' would end the process.
    client.on('error', () => this.#forget(client));
    client.on('end', () => this.#forget(client));
    this.#all.add(client);
    // connectionTimeoutMillis covers connect() only.
    const timer = setTimeout(() => destroy(client), 2 * connectMsMax);
    try {
      await client.connect();
      const session = await requireSession(client, servers.attributes);
      const { rows } = await client.query<{ statement: number; idle: number }>(limitsSql);
      return {
        client,
        pid: announcedPid(client) === session.pid ? session.pid : undefined,
        statementTimeoutMs: Number(rows[0]?.statement),
        idleTimeoutMs: Number(rows[0]?.idle),
      };
    } catch (error) {
      this.#forget(client);
      destroy(client);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  #forget(client: pg.Client): void {
    this.#all.delete(client);
    const at = this.#idle.findIndex(({ session }) => session.client === client);
    if (at !== -1) for (const { timer } of this.#idle.splice(at, 1)) clearTimeout(timer);
  }
}
