import type { ServerList } from '../../database/connection-string.ts';
import { ReconnectingClient } from '../../database/reconnecting-client.ts';
import type { Logger } from '../../telemetry/logging.ts';

export interface DutyConnectionOptions {
  servers: ServerList;
  /** Names the connection in pg_stat_activity. */
  duty: string;
  /** The relay's name. */
  relay: string;
  queryTimeoutMs: number;
  logger: Logger;
}

/** The connection for a duty that only the leader has: opened for its work, so that other relays have none. */
export class DutyConnection {
  readonly #options: DutyConnectionOptions;
  #client: ReconnectingClient | undefined;

  constructor(options: DutyConnectionOptions) {
    this.#options = options;
  }

  /** The open connection, if there is one. */
  get current(): ReconnectingClient | undefined {
    return this.#client;
  }

  async open(): Promise<ReconnectingClient> {
    if (this.#client) return this.#client;
    const { servers, duty, relay, queryTimeoutMs, logger } = this.#options;
    const applicationName = `postcommit ${duty} ${relay}`.slice(0, 63);
    const client = new ReconnectingClient({ servers, applicationName, queryTimeoutMs, logger });
    this.#client = client;
    try {
      await client.open();
    } catch (error) {
      await this.close();
      throw error;
    }
    return client;
  }

  async close(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    await client?.close();
  }
}
