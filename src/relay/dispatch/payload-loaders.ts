import type { EventOutcome } from '../event/outcome.ts';
import type { LoadableEvent, PayloadLoaderOptions } from './payload-loader.ts';
import { PayloadLoader } from './payload-loader.ts';

/**
 * A payload loader for each queue, with an equal part of the budget: deliveries of one queue that take an hour must not use up
 * the budget of the others.
 */
export class PayloadLoaders implements Pick<PayloadLoader, 'load' | 'release' | 'forget'> {
  readonly #byQueue: ReadonlyMap<string, PayloadLoader>;

  constructor(queues: readonly string[], options: PayloadLoaderOptions) {
    const inFlightBytesMax = Math.floor(options.inFlightBytesMax / queues.length);
    this.#byQueue = new Map(queues.map((queue) => [queue, new PayloadLoader({ ...options, inFlightBytesMax })]));
  }

  load(event: LoadableEvent, done: (failure: EventOutcome | undefined) => void): void {
    this.#byQueue.get(event.queue)?.load(event, done);
  }

  release(event: LoadableEvent): void {
    this.#byQueue.get(event.queue)?.release(event);
  }

  stuck(queue: string, max: number): number {
    return this.#byQueue.get(queue)?.stuck(max) ?? 0;
  }

  forget(): void {
    for (const loader of this.#byQueue.values()) loader.forget();
  }
}
