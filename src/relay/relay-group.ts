import { setTimeout as sleep } from 'node:timers/promises';
import { PostcommitError } from '../errors.ts';
import type { HttpServer } from '../http/serve.ts';
import { serveHttp } from '../http/serve.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { textOfAll } from '../metrics/metrics.ts';
import { errorText } from '../telemetry/error-text.ts';
import type { Logger } from '../telemetry/logging.ts';
import { readinessOfSeveral, relayEndpoints } from './endpoints.ts';
import type { RelayHttpOptions } from './options.ts';
import type { Relay } from './relay.ts';
import type { RunOnceResult } from './run-once-options.ts';

export interface RelayGroupOptions {
  /** By the name of the outbox. None of them serves endpoints of its own. */
  relays: ReadonlyMap<string, Relay>;
  /** Of all relays, each with a label of its own. */
  metrics: readonly Metrics[];
  /** Where to serve the endpoints of all. Default: not served. */
  http?: RelayHttpOptions | undefined;
  logger: Logger;
}

/** The result of each outbox: what was delivered, or why it failed. */
export type GroupRunOnceResult = Record<string, RunOnceResult | { error: { code: string; message: string } }>;

const retryMsMin = 1_000;
const retryMsMax = 30_000;

/**
 * Relays of several outboxes in one process. Each has its own state and connections. One that cannot start is tried again, at
 * first after a second and later every 30 seconds; the others do not wait for it.
 */
export class RelayGroup {
  readonly #options: RelayGroupOptions;
  readonly #stopping = new AbortController();
  #server: HttpServer | undefined;

  constructor(options: RelayGroupOptions) {
    this.#options = options;
  }

  /** Starts all of them. Returns at once; fails only if the endpoints cannot be served. */
  async start(): Promise<void> {
    await this.#serve();
    for (const [name, relay] of this.#options.relays) void this.#startUntilItRuns(name, relay);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all([...this.#options.relays.values()].map((relay) => relay.stop()));
    await this.#server?.stop();
  }

  /** Runs all of them once, at the same time. An outbox that fails has the error as its result. */
  async runOnce(): Promise<GroupRunOnceResult> {
    const run = async ([name, relay]: [string, Relay]): Promise<[string, GroupRunOnceResult[string]]> => {
      try {
        return [name, await relay.runOnce()];
      } catch (error) {
        const code = error instanceof PostcommitError ? error.code : 'UNEXPECTED';
        return [name, { error: { code, message: errorText(error) } }];
      }
    };
    return Object.fromEntries(await Promise.all([...this.#options.relays].map(run)));
  }

  async #serve(): Promise<void> {
    const { http, metrics, relays, logger } = this.#options;
    if (http === undefined) return;
    const statuses = () => new Map([...relays].map(([name, relay]) => [name, relay.stats()]));
    const [first] = metrics;
    const ofAll = first && { contentType: first.contentType, text: () => textOfAll(metrics) };
    this.#server = await serveHttp({
      ...http,
      fetch: relayEndpoints(() => readinessOfSeveral(statuses()), ofAll, http.fetch),
      onError: (error) => logger.error({ error: errorText(error) }, 'an HTTP request failed'),
    });
    logger.info({ url: this.#server.url }, 'serving /livez, /readyz and /metrics');
  }

  async #startUntilItRuns(name: string, relay: Relay): Promise<void> {
    const { signal } = this.#stopping;
    for (let retryInMs = retryMsMin; !signal.aborted; retryInMs = Math.min(retryInMs * 2, retryMsMax)) {
      try {
        return await relay.start();
      } catch (error) {
        const { logger } = this.#options;
        logger.error({ outbox: name, retryInMs, error: errorText(error) }, 'the relay could not start, retrying');
        await sleep(retryInMs, undefined, { signal }).catch(() => {});
      }
    }
  }
}
