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
  /** When that process started, in UTC. Process ids are reused, and each server has its own. */
  readonly startedAt: string | undefined;
  readonly statementTimeoutMs: number;
  readonly idleTimeoutMs: number;
}

/** How long one attempt to connect may take. */
const connectMsMax = 10_000;
/** A session that was not used for this long is closed. */
const idleMs = 10_000;

// The application may set any DateStyle and TimeZone for its sessions: to_char() depends on neither.
const sessionSql = `
select (select s.setting::float8 from pg_catalog.pg_settings s where s.name = 'statement_timeout') as statement,
       (select s.setting::float8 from pg_catalog.pg_settings s where s.name = 'idle_in_transaction_session_timeout') as idle,
       (select pg_catalog.to_char(a.backend_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
          from pg_catalog.pg_stat_activity a where a.pid = pg_catalog.pg_backend_pid()) as "startedAt"`;

/**
 * Sessions for transactions of the application, with the settings that its own connections have. Callers limit how many are in use.
 * Unlike `pg.Pool` it looks for the primary again with each new session.
 */
export class SessionPool {
  readonly #options: SessionPoolOptions;
  readonly #idle: { session: PooledSession; timer: NodeJS.Timeout }[] = [];
  readonly #all = new Set<pg.Client>();
  readonly #lostWith = new WeakMap<pg.Client, Error>();
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

  /** Why the connection ended. `undefined`: it did not, or its user has closed it. */
  lostWith({ client }: PooledSession): Error | undefined {
    return this.#lostWith.get(client);
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
    // Listeners of its user would stay while others use the session.
    session.client.removeAllListeners();
    this.#listen(session.client);
    const timer = setTimeout(() => {
      this.#forget(session.client);
      void endOrDestroy(session.client);
    }, idleMs).unref();
    this.#idle.push({ session, timer });
  }

  /** Closes a session at once. Statements in flight fail, and the server rolls back when it notices. */
  discard({ client }: PooledSession, reason?: Error): void {
    this.#forget(client);
    if (reason !== undefined && !this.#lostWith.has(client)) this.#lostWith.set(client, reason);
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
    this.#listen(client);
    this.#all.add(client);
    // connectionTimeoutMillis covers connect() only.
    const timer = setTimeout(() => destroy(client), 2 * connectMsMax);
    try {
      await client.connect();
      const session = await requireSession(client, servers.attributes);
      const { rows } = await client.query<{ statement: number; idle: number; startedAt: string | null }>(sessionSql);
      return {
        client,
        pid: announcedPid(client) === session.pid ? session.pid : undefined,
        startedAt: rows[0]?.startedAt ?? undefined,
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

  #listen(client: pg.Client): void {
    // The statement in flight fails too. Without a listener, 'error' would end the process.
    client.on('error', (error) => {
      this.#forget(client);
      if (!this.#lostWith.has(client)) this.#lostWith.set(client, error);
    });
    client.on('end', () => this.#forget(client));
  }

  #forget(client: pg.Client): void {
    this.#all.delete(client);
    const at = this.#idle.findIndex(({ session }) => session.client === client);
    if (at !== -1) for (const { timer } of this.#idle.splice(at, 1)) clearTimeout(timer);
  }
}
