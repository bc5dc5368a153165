import { setTimeout as sleep } from 'node:timers/promises';
import { errorText } from '../../../telemetry/error-text.ts';
import type { Logger } from '../../../telemetry/logging.ts';
import { SparseLog } from '../../../telemetry/logging.ts';
import type { Service } from '../../service/service.ts';
import type { DestinationSet } from './destination-set.ts';
import { refreshEveryMs } from './tuning.ts';

export interface DestinationRefresherOptions {
  destinations: Pick<DestinationSet, 'refresh' | 'allUp'>;
  logger: Logger;
}

/** Refreshes the state of all destinations repeatedly; even in a relay without any, for `abandoned`. */
export class DestinationRefresher implements Service {
  readonly #options: DestinationRefresherOptions;
  readonly #log = new SparseLog();
  readonly #stopped = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: DestinationRefresherOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { destinations, logger } = this.#options;
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      let pauseMs = refreshEveryMs.calm;
      try {
        const unshelved = await destinations.refresh();
        if (unshelved > 0) pauseMs = refreshEveryMs.draining;
        else if (!destinations.allUp) pauseMs = refreshEveryMs.down;
      } catch (error) {
        this.#log.say('refresh', (suppressed) =>
          logger.warn({ suppressed, error: errorText(error) }, 'cannot read the state of destinations, retrying'),
        );
      }
      // With jitter: otherwise a relay that cannot reach a destination might always be the first to probe it.
      await sleep(pauseMs * (0.75 + Math.random() / 2), undefined, { signal }).catch(() => {});
    }
  }
}
