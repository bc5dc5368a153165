import type pg from 'pg';
import { Link } from '../database/link.ts';
import type { Logger } from '../telemetry/logging.ts';
import type { Lifecycle } from './lifecycle.ts';

export interface RelayLinksOptions {
  connectionString: string;
  /** The relay's name, shown in pg_stat_activity. */
  name: string;
  leaseMs: number;
  logger: Logger;
  lifecycle: Lifecycle;
  /** Heard on the connection `claims`. */
  doorbell: { attach(client: pg.Client): Promise<void>; detach(): void; readonly proven: boolean };
}

/** No answer for this long means a dead connection: well above any statement of ours, below what an operator waits. */
const queryTimeoutMs = 15_000;
/** A heartbeat is noticed missing in time for another try before the lease runs out. */
const beatTimeoutMs = (leaseMs: number) => Math.min(queryTimeoutMs, Math.max(500, leaseMs / 3));

/**
 * The three connections of a relay: claims, results, and the heartbeat, so that neither a long claim nor a burst of
 * results can delay a sign of life. Claims are made on the connection that hears the doorbell: its server process is
 * awake by then, and while a claim is under way nobody needs to be woken.
 */
export class RelayLinks {
  readonly claims: Link;
  readonly results: Link;
  readonly control: Link;

  constructor(options: RelayLinksOptions) {
    this.claims = link('claims', options);
    this.results = link('results', options);
    this.control = link('control', options);
  }

  /** Whether all of them stand. */
  get connected(): boolean {
    return this.#all.every((each) => each.connected);
  }

  async open(): Promise<void> {
    await Promise.all(this.#all.map((each) => each.open()));
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((each) => each.close()));
  }

  get #all(): Link[] {
    return [this.claims, this.results, this.control];
  }
}

function link(purpose: 'claims' | 'results' | 'control', options: RelayLinksOptions): Link {
  const { connectionString, logger, name, leaseMs, lifecycle, doorbell } = options;
  const hears = purpose === 'claims';
  const made: Link = new Link({
    connectionString,
    applicationName: `postcommit ${purpose} ${name}`.slice(0, 63),
    queryTimeoutMs: purpose === 'control' ? beatTimeoutMs(leaseMs) : queryTimeoutMs,
    logger,
    ...(hears && { onConnect: (client) => doorbell.attach(client), isSession: () => doorbell.proven }),
    onLost: (error) => {
      if (hears) doorbell.detach();
      lifecycle.tell('disconnected', { connection: purpose, error: String(error) });
      made.ensure(); // Not with the next statement only: until then nothing could be heard on it.
    },
  });
  return made;
}
