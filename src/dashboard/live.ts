import { setTimeout as sleep } from 'node:timers/promises';
import type { Overview, OverviewReader } from './overview.ts';

/** What viewers get: the state of an outbox, or why it could not be read. */
export type LiveMessage = { overview: Overview } | { error: { code: string; message: string } };
export interface Viewer {
  show(message: LiveMessage): void;
  /** The feed is closed. */
  end(): void;
}

const pollMs = 2_000;
const glanceMs = 3_000;

/**
 * Reads one outbox every two seconds and passes the result to all viewers: the load on the database does not depend on how many
 * there are. Without viewers it reads nothing.
 */
export class LiveFeed {
  readonly #reader: OverviewReader;
  readonly #describe: (error: unknown) => { code: string; message: string };
  readonly #viewers = new Set<Viewer>();
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> | undefined;
  #last: LiveMessage | undefined;
  #lastAt = Number.NEGATIVE_INFINITY;

  constructor(reader: OverviewReader, describe: (error: unknown) => { code: string; message: string }) {
    this.#reader = reader;
    this.#describe = describe;
  }

  get viewers(): number {
    return this.#viewers.size;
  }

  /** Adds a viewer, which gets the latest state at once. Returns the function that removes it. */
  watch(viewer: Viewer): () => void {
    this.#viewers.add(viewer);
    if (this.#last && performance.now() - this.#lastAt < pollMs * 2) viewer.show(this.#last);
    if (this.#timer === undefined) void this.#readOnce();
    return () => {
      this.#viewers.delete(viewer);
      if (this.#viewers.size > 0) return;
      clearTimeout(this.#timer);
      this.#timer = undefined;
    };
  }

  /** The latest state, read now unless it is fresh. A database that does not answer in three seconds counts as unreachable. */
  async glance(): Promise<LiveMessage> {
    if (this.#last && performance.now() - this.#lastAt < pollMs * 2) return this.#last;
    const stop = new AbortController();
    const late = sleep(glanceMs, 'late', { signal: stop.signal, ref: false }).catch(() => 'late');
    const outcome = await Promise.race([this.#readOnce(), late]);
    stop.abort();
    if (outcome !== 'late' && this.#last) return this.#last;
    return { error: { code: 'NO_ANSWER', message: 'The database does not answer.' } };
  }

  close(): void {
    for (const viewer of this.#viewers) viewer.end();
    this.#viewers.clear();
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #readOnce(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<void> {
    clearTimeout(this.#timer);
    try {
      this.#last = { overview: await this.#reader.read() };
    } catch (error) {
      this.#last = { error: this.#describe(error) };
    }
    this.#lastAt = performance.now();
    for (const viewer of this.#viewers) viewer.show(this.#last);
    if (this.#viewers.size === 0) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.#readOnce();
    }, pollMs);
    this.#timer.unref();
  }
}
