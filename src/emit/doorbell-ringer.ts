import { AsyncLocalStorage } from 'node:async_hooks';
import type { Executor } from '../database/executor.ts';
import { ring, ringInProcess, ringSql } from '../outbox/ring.ts';

const outsideOfRequests = AsyncLocalStorage.snapshot();
const pauseMs = 2;
/**
 * In a stream of commits, this many within this time, NOTIFY becomes rare: each takes some of the time of the transactions
 * beside it, and a relay that finds several events at once goes on looking by itself (relay/doorbell.ts). The first pause
 * of a stream is just long enough for several to gather.
 */
const streamMin = 8;
const streamWithinMs = 10;
const firstStreamPauseMs = 5;
const streamPauseMs = 50;

/**
 * Rings for the relays after a commit: at once in this process, and by NOTIFY for the others. The NOTIFY is sent
 * behind COMMIT or on a side connection, at most once per pause, and never inside a business transaction: there it takes a global lock at
 * commit and undoes group commit (8 writers: 13,400 commits/s without, 4,500 with, 13,200 this way). Losing one is
 * harmless, because relays poll underneath.
 */
export class DoorbellRinger {
  readonly #db: Executor;
  readonly #schema: string;
  readonly #notify: boolean;
  #pending = false;
  /** When the last commits were, as a ring. */
  readonly #commitsAt: number[] = new Array(streamMin).fill(Number.NEGATIVE_INFINITY);
  #commits = 0;
  #busy = false;

  constructor(db: Executor, schema: string, notify: boolean) {
    this.#db = db;
    this.#schema = schema;
    this.#notify = notify;
  }

  /**
   * What to send behind a COMMIT on its own connection, if this is the time for a NOTIFY: it is carried out right after
   * the commit, a round trip before one that waits for the commit's answer, and in a transaction of its own.
   */
  along(): string | undefined {
    if (!this.#notify || this.#busy) return undefined;
    outsideOfRequests(() => void this.#send(true));
    return ringSql(this.#schema);
  }

  /** After a commit. `along`: NOTIFY was sent with it. */
  ring(along = false): void {
    ringInProcess(this.#schema);
    if (!this.#notify) return;
    this.#commitsAt[this.#commits++ % streamMin] = performance.now();
    if (along) return;
    this.#pending = true;
    if (!this.#busy) outsideOfRequests(() => void this.#send(false));
  }

  async #send(along: boolean): Promise<void> {
    this.#busy = true;
    let inStream = false;
    for (let sent = along; sent || this.#pending; sent = false) {
      if (!sent) {
        this.#pending = false;
        await ring(this.#db, this.#schema).catch(() => {});
      }
      const wasInStream = inStream;
      inStream = this.#isStream();
      const streamMs = wasInStream ? streamPauseMs : firstStreamPauseMs;
      await new Promise<void>((resolve) => setTimeout(resolve, inStream ? streamMs : pauseMs).unref());
    }
    this.#busy = false;
  }

  #isStream(): boolean {
    const oldest = this.#commitsAt[this.#commits % streamMin] as number;
    return performance.now() - oldest < streamWithinMs;
  }
}
