import type pg from 'pg';
import type { ServerList } from '../database/connection-string.ts';
import { ReconnectingClient, reconnectDelayMs } from '../database/reconnecting-client.ts';
import { SessionPool } from '../database/session-pool.ts';
import type { Logger } from '../telemetry/logging.ts';
import { othersRegainMs } from './lane/tuning.ts';
import type { Service } from './service/service.ts';
import type { Lifecycle } from './telemetry/lifecycle.ts';

export interface RelayConnectionsOptions {
  servers: ServerList;
  /** The relay's name, shown in pg_stat_activity. */
  name: string;
  leaseMs: number;
  logger: Logger;
  lifecycle: Lifecycle;
  /** Listens on the connection `claims`. */
  doorbell: { attach(client: pg.Client): Promise<void>; detach(): void; readonly proven: boolean };
}

/**
 * A connection that receives nothing for this long is dead: well above any statement of the relay, but bearable for
 * operators.
 */
const queryTimeoutMs = 15_000;
/** Before PostgreSQL sends the first byte it converts the payload to text: 4 to 6 s for a gigabyte on an idle server. */
const loadTimeoutMs = 60_000;
/** The leadership of maintenance is renewed on this connection: a lost one is noticed in time for another try. */
const controlTimeoutMs = (leaseMs: number) => Math.min(queryTimeoutMs, Math.max(500, leaseMs / 3));

/**
 * For claims and results. After a crash of the server, the relays claim again what they have in hand, and others give them
 * `othersRegainMs` for it: a relay that waited longer than that before it connects would find its events claimed by others.
 */
function regainReconnectMs(attempt: number): number {
  return Math.min(othersRegainMs / 2, reconnectDelayMs(attempt));
}

type Purpose = 'claims' | 'results' | 'control' | 'loads';

/**
 * The connections of a relay, except the heartbeat's: claims, results and control (destinations, leadership), so that neither a
 * long claim nor a burst of results delays the others. Claims are made on the connection that listens: its server process is awake by then, and while a claim is under
 * way no notification is needed. Large payloads have a connection of their own, opened for the first of them, so that no
 * claim waits behind a transfer.
 */
export class RelayConnections implements Service {
  readonly claims: ReconnectingClient;
  readonly results: ReconnectingClient;
  readonly control: ReconnectingClient;
  /** Connects when it is used. */
  readonly loads: ReconnectingClient;
  /** For the transactions of handlers: connects for the first of them. */
  readonly handlers: SessionPool;
  #starting: Promise<void> | undefined;

  constructor(options: RelayConnectionsOptions) {
    this.claims = link('claims', options);
    this.results = link('results', options);
    this.control = link('control', options);
    this.loads = link('loads', options);
    const applicationName = `postcommit handlers ${options.name}`.slice(0, 63);
    this.handlers = new SessionPool({ servers: options.servers, applicationName });
  }

  /** Whether all that a relay needs all the time are connected. */
  get connected(): boolean {
    return this.#all.every((each) => each.connected);
  }

  /** Connects. Fails when that fails, so that a wrong address is reported at once. */
  start(): Promise<void> {
    // Once: a second connection of a link would never be closed.
    this.#starting ??= Promise.all(this.#all.map((each) => each.open())).then(() => {});
    return this.#starting;
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#all, this.loads, this.handlers].map((each) => each.close()));
  }

  get #all(): ReconnectingClient[] {
    return [this.claims, this.results, this.control];
  }
}

function link(purpose: Purpose, options: RelayConnectionsOptions): ReconnectingClient {
  const { servers, logger, name, lifecycle, doorbell } = options;
  const listens = purpose === 'claims';
  const made: ReconnectingClient = new ReconnectingClient({
    servers,
    applicationName: `postcommit ${purpose} ${name}`.slice(0, 63),
    queryTimeoutMs: timeoutMs(purpose, options.leaseMs),
    // When the server has no connection left for it, the event is released: another relay may have one.
    ...(purpose === 'loads' && { connectWaitMs: loadTimeoutMs }),
    ...((listens || purpose === 'results') && { reconnectDelayMs: regainReconnectMs }),
    logger,
    ...(listens && { onConnect: (client) => doorbell.attach(client), isSession: () => doorbell.proven }),
    onLost: (error) => {
      if (listens) doorbell.detach();
      lifecycle.tell('disconnected', { connection: purpose, error: String(error) });
      // Not only with the next statement: until then no notification would be received on it.
      if (purpose !== 'loads') made.ensure();
    },
  });
  return made;
}

function timeoutMs(purpose: Purpose, leaseMs: number): number {
  if (purpose === 'loads') return loadTimeoutMs;
  return purpose === 'control' ? controlTimeoutMs(leaseMs) : queryTimeoutMs;
}
