import type { ServerList } from '../../database/connection-string.ts';
import type { Executor } from '../../database/executor.ts';
import type { GaugeSample } from '../../metrics/metrics.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import { DutyConnection } from '../maintenance/duty-connection.ts';
import { endDuty } from '../maintenance/end-duty.ts';
import { Leader } from '../maintenance/leader.ts';
import type { Service } from '../service/service.ts';
import { sampleOutbox } from './sample-outbox.ts';

export interface GaugeSamplerOptions {
  schema: string;
  relay: string;
  servers: ServerList;
  /** Used only to renew the duty. */
  control: Executor;
  leaseMs: number;
  intervalMs: number;
  token: () => string;
  logger: Logger;
}

/** No statement takes nearly this long. */
const queryTimeoutMs = 15_000;
/** A sample that is older than this many intervals is not reported: the database is unreachable. */
const intervalsMax = 3;

/**
 * Samples the gauges that describe the outbox itself. Of all relays with metrics one has this duty, so that sums over relays count
 * nothing twice; it is separate from maintenance, which a relay may not do. A relay that loses the duty, or cannot reach the
 * database, reports no such gauge, instead of one that no longer changes.
 */
export class GaugeSampler implements Service {
  readonly #options: GaugeSamplerOptions;
  readonly #leader: Leader;
  readonly #connection: DutyConnection;
  readonly #log = new SparseLog(60_000);
  #last: { at: number; samples: readonly GaugeSample[] } | undefined;
  #timer: NodeJS.Timeout | undefined;
  #sampling: Promise<void> | undefined;
  #running = false;
  #stopped = false;
  /** Also while the duty is overdue: the next heartbeat decides. */
  #hasDuty = false;

  constructor(options: GaugeSamplerOptions) {
    this.#options = options;
    const { schema, control, leaseMs, token, logger, relay } = options;
    this.#connection = new DutyConnection({ ...options, duty: 'metrics', queryTimeoutMs });
    this.#leader = new Leader({
      name: 'metrics',
      schema,
      db: control,
      leaseMs,
      token,
      logger,
      onTaken: (epoch) => {
        logger.debug({ relay, epoch }, 'samples the gauges of the outbox');
        this.#hasDuty = true;
        this.#schedule(0);
      },
      onLost: (epoch) => {
        logger.debug({ relay, epoch }, 'another relay samples the gauges of the outbox');
        clearTimeout(this.#timer);
        this.#hasDuty = false;
        this.#last = undefined;
        void this.#connection.close();
      },
    });
  }

  /** The last sample, while this relay has the duty and the sample is current. */
  get samples(): readonly GaugeSample[] {
    if (!this.#last || !this.#leader.duty) return [];
    const ageMs = performance.now() - this.#last.at;
    return ageMs <= this.#options.intervalMs * intervalsMax + queryTimeoutMs ? this.#last.samples : [];
  }

  async start(): Promise<void> {
    if (this.#running || this.#stopped) return;
    this.#running = true;
    void this.#leader.beat();
  }

  /** With each heartbeat. Never fails. */
  beat(): Promise<void> {
    return this.#running ? this.#leader.beat() : Promise.resolve();
  }

  async stop(): Promise<void> {
    this.#running = false;
    this.#stopped = true;
    clearTimeout(this.#timer);
    await endDuty(this.#sampling, this.#connection, this.#leader);
  }

  #schedule(afterMs: number): void {
    if (!this.#running) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#sampling = this.#sample().then(() => {
        this.#sampling = undefined;
        if (this.#hasDuty) this.#schedule(this.#options.intervalMs);
      });
    }, afterMs);
  }

  /** Never fails. */
  async #sample(): Promise<void> {
    const { schema, logger } = this.#options;
    if (!this.#leader.duty) return;
    const at = performance.now();
    try {
      const samples = await sampleOutbox(await this.#connection.open(), schema);
      if (this.#hasDuty) this.#last = { at, samples };
    } catch (error) {
      if (!this.#running) return;
      this.#log.say('sample', (suppressed) =>
        logger.warn({ suppressed, error: errorText(error) }, 'cannot sample the gauges of the outbox, retrying'),
      );
      await this.#connection.close();
    }
  }
}
