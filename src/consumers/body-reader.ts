import type { BodyLimits } from './request-body.ts';

export interface BodyReaderOptions {
  readonly bodyBytesMax: number;
  readonly bodyTimeoutMs: number;
  readonly readingMax: number;
  readonly readingBytesMax: number;
}

interface BodyRead {
  readonly tooSlow: AbortController;
  /** Allocated for the body. */
  bytes: number;
}

/**
 * Reads bodies whose senders are not verified yet, with limits of their number and of the memory that they hold together. Over a limit
 * it aborts the oldest read: refusing the newest would let senders that stall keep all others out.
 */
export class BodyReader {
  readonly #options: BodyReaderOptions;
  /** The oldest first. */
  readonly #reads = new Set<BodyRead>();
  #bytes = 0;

  constructor(options: BodyReaderOptions) {
    this.#options = options;
  }

  async read<T>(body: (limits: BodyLimits) => Promise<T>): Promise<T> {
    const { bodyBytesMax, bodyTimeoutMs, readingMax } = this.#options;
    while (this.#reads.size >= readingMax) this.#abortOldest();
    const read: BodyRead = { tooSlow: new AbortController(), bytes: 0 };
    const timer = setTimeout(() => read.tooSlow.abort(), bodyTimeoutMs);
    this.#reads.add(read);
    try {
      return await body({
        bytesMax: bodyBytesMax,
        tooSlow: read.tooSlow.signal,
        reserve: (bytes) => this.#reserve(read, bytes),
      });
    } finally {
      clearTimeout(timer);
      this.#release(read);
    }
  }

  #reserve(read: BodyRead, bytes: number): void {
    // An aborted read has been released, and allocates no more.
    if (!this.#reads.has(read)) return;
    read.bytes += bytes;
    this.#bytes += bytes;
    while (this.#bytes > this.#options.readingBytesMax) this.#abortOldest();
  }

  #abortOldest(): void {
    for (const oldest of this.#reads) {
      // Released now: the read itself ends only after this call, and would be aborted again instead of the next one.
      this.#release(oldest);
      oldest.tooSlow.abort();
      return;
    }
  }

  #release(read: BodyRead): void {
    if (this.#reads.delete(read)) this.#bytes -= read.bytes;
  }
}
