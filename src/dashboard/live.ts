import type { Overview, OverviewReader } from './overview.ts';

/** What viewers get: the state of an outbox, or why it could not be read. */
export type LiveMessage = { overview: Overview } | { error: { code: string; message: string } };
export interface Viewer {
  show(message: LiveMessage): void;
  /** The feed is closed. */
  end(): void;
}

const pollMs = 2_000;

/**
 * Reads one outbox every two seconds and passes the result to all viewers: the load on the database does not depend on how many
 * there are. Without viewers it reads nothing.
 */
export class LiveFeed {
  readonly #reader: OverviewReader;
  readonly #describe: (error: unknown) => { code: string; message: string };
  readonly #viewers = new Set<Viewer>();
  #timer: NodeJS.Timeout | undefined;
  #reading = false;
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
    if (this.#timer === undefined && !this.#reading) void this.#read();
    return () => {
      this.#viewers.delete(viewer);
      if (this.#viewers.size > 0) return;
      clearTimeout(this.#timer);
      this.#timer = undefined;
    };
  }

  close(): void {
    for (const viewer of this.#viewers) viewer.end();
    this.#viewers.clear();
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #read(): Promise<void> {
    this.#reading = true;
    try {
      this.#last = { overview: await this.#reader.read() };
    } catch (error) {
      this.#last = { error: this.#describe(error) };
    }
    this.#reading = false;
    this.#lastAt = performance.now();
    for (const viewer of this.#viewers) viewer.show(this.#last);
    if (this.#viewers.size === 0) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.#read();
    }, pollMs);
    this.#timer.unref();
  }
}
