/** The part of a message that is used here. */
interface Numbered {
  /** The position in the stream. */
  readonly seq?: number | undefined;
  readonly data: Uint8Array;
}

interface RedeliveriesOptions<Message> {
  /** The position up to which NATS had delivered messages before. */
  readonly lastSeq: number;
  /** How many of those are not acknowledged. */
  readonly count: number;
  /** After this time NATS has begun to deliver again what a crashed process had. */
  readonly waitMs: number;
  readonly deliver: (message: Message) => void;
}

/** For how long no redelivery arrives before the rest is taken for messages of another process, which works on them. */
const quietMs = 1_000;
/** JetStream's default of `max_ack_pending`, which bounds them on the server. */
const newerMax = 1_000;
/**
 * 64 MiB. A message of NATS has up to 1 MB by default, and up to 64 MB by configuration: 1,000 of them would exhaust the memory of the
 * process, which begins to hold them as it starts, so that it would never get further.
 */
const newerBytesMax = 67_108_864;

/**
 * Holds new messages back until NATS has delivered again what it had delivered before this process started: they may be of the same
 * keys. NATS redelivers the messages of a crashed process when their `ack_wait` has passed, and new ones at once.
 */
export class Redeliveries<Message extends Numbered> {
  readonly #options: RedeliveriesOptions<Message>;
  readonly #seen = new Set<number>();
  readonly #newer: Message[] = [];
  #newerBytes = 0;
  /** For how much longer messages are read until it is over. */
  #remainingMs: number;
  #resumedAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #isOver: boolean;

  constructor(options: RedeliveriesOptions<Message>) {
    this.#options = options;
    this.#remainingMs = options.waitMs + quietMs;
    this.#isOver = options.count === 0;
  }

  /** Whether nothing is held back any more. */
  get isOver(): boolean {
    return this.#isOver;
  }

  take(message: Message): void {
    const { lastSeq, count, deliver } = this.#options;
    const { seq = 0 } = message;
    if (!this.#isOver && seq > lastSeq) {
      this.#newer.push(message);
      this.#newerBytes += message.data.length;
      if (this.#newer.length >= newerMax || this.#newerBytes >= newerBytesMax) this.#end();
      return;
    }
    deliver(message);
    if (this.#isOver) return;
    this.#seen.add(seq);
    this.#remainingMs = Math.max(this.#remainingMs, quietMs);
    if (this.#seen.size >= count) this.#end();
  }

  /** The next message is read from now on. */
  resume(): void {
    if (this.#isOver) return;
    this.#resumedAt = performance.now();
    this.#timer = setTimeout(() => this.#end(), this.#remainingMs);
  }

  /** No message is read until `resume`. */
  pause(): void {
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#remainingMs -= performance.now() - this.#resumedAt;
  }

  /** Returns what was held back. */
  stop(): Message[] {
    this.pause();
    this.#newerBytes = 0;
    return this.#newer.splice(0);
  }

  #end(): void {
    this.#isOver = true;
    for (const message of this.stop()) this.#options.deliver(message);
  }
}
