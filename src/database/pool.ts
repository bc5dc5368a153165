import pg from 'pg';
import { findServer } from './connect.ts';
import type { ConnectionOptions } from './connection-options.ts';
import { resolveConnection } from './connection-options.ts';

/** A pool that connects with its first statement, and tries again with the next if it could not. */
export class LazyPool {
  readonly #open: () => Promise<pg.Pool>;
  readonly #listeners: [event: 'release', listener: (...args: unknown[]) => void][] = [];
  #pool: Promise<pg.Pool> | undefined;

  constructor(options: ConnectionOptions, applicationName: string) {
    this.#open = () => openPool(options, applicationName);
  }

  /** Connects now. Fails if no server is reachable. */
  open(): Promise<pg.Pool> {
    this.#pool ??= this.#connect();
    return this.#pool;
  }

  async connect(): Promise<pg.PoolClient> {
    return (await this.open()).connect();
  }

  async query(text: string, values?: unknown[]): Promise<pg.QueryResult> {
    return (await this.open()).query(text, values);
  }

  on(event: 'release', listener: (...args: unknown[]) => void): void {
    this.#listeners.push([event, listener]);
  }

  async end(): Promise<void> {
    await (await this.#pool)?.end();
  }

  async #connect(): Promise<pg.Pool> {
    try {
      const pool = await this.#open();
      for (const [event, listener] of this.#listeners) pool.on(event, listener);
      return pool;
    } catch (error) {
      this.#pool = undefined;
      throw error;
    }
  }
}

/** A pool for a few statements by an operator, on the first server that is suitable. It fails rather than hang. */
export async function openPool(
  options: ConnectionOptions,
  applicationName: string,
  queryTimeoutMs = 120_000,
): Promise<pg.Pool> {
  const server = await findServer(resolveConnection(options), applicationName);
  const pool = new pg.Pool({
    ...server.config,
    application_name: applicationName,
    max: 2,
    connectionTimeoutMillis: 8_000,
    // Long enough for a bulk statement over a large outbox; short enough to notice a peer that went silent.
    query_timeout: queryTimeoutMs,
  });
  // An idle connection that breaks is reported here, and by the next statement. Without a listener, 'error' ends the process.
  pool.on('error', () => {});
  return pool;
}
