import { AsyncLocalStorage } from 'node:async_hooks';
import type { Executor } from '../database/executor.ts';
import { ring, ringInProcess, ringSql } from '../outbox/emitting/notify.ts';

const outsideOfRequests = AsyncLocalStorage.snapshot();
/** A commit is rung for at once while there are fewer than this in the time of `recentMs`; then after a pause. */
const briskMin = 6;
const recentMs = 10;
const briskPauseMs = 2;
/**
 * In a stream of commits, this many in that time, NOTIFY becomes rare: each takes some of the time of the transactions
 * beside it, and a relay that finds several events at once goes on looking by itself (relay/doorbell.ts). The first pause
 * of a stream is just long enough for several to gather.
 */
const streamMin = 8;
const firstStreamPauseMs = 5;
const streamPauseMs = 50;

/**
 * Rings for the relays after a commit: at once in this process, and by NOTIFY for the others. The NOTIFY is sent behind
 * COMMIT or on a side connection, the more rarely the more commits there are, and never inside a business transaction:
 * there it takes a global lock at commit and undoes group commit (8 writers: 13,400 commits/s without, 4,500 with, 13,200
 * this way). Losing one is harmless, because relays poll underneath.
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
    if (!this.#notify) return undefined;
    // Counted before they are answered: of many that are sent together, the first few are rung for.
    this.#count();
    if (this.#busy) return undefined;
    outsideOfRequests(() => void this.#send(true));
    return ringSql(this.#schema);
  }

  /** After a commit. `along`: whether NOTIFY was sent with it, if that was asked. */
  ring(along?: boolean): void {
    ringInProcess(this.#schema);
    if (!this.#notify) return;
    if (along === undefined) this.#count();
    if (along) return;
    this.#pending = true;
    if (!this.#busy) outsideOfRequests(() => void this.#send(false));
  }

  #count(): void {
    this.#commitsAt[this.#commits++ % streamMin] = performance.now();
  }

  async #send(along: boolean): Promise<void> {
    this.#busy = true;
    let inStream = false;
    for (let sent = along; sent || this.#pending; sent = false) {
      if (!sent) {
        this.#pending = false;
        await ring(this.#db, this.#schema).catch(() => {});
      }
      const pauseMs = this.#pauseMs(inStream);
      inStream = this.#areRecent(streamMin);
      if (pauseMs > 0) await new Promise<void>((resolve) => setTimeout(resolve, pauseMs).unref());
    }
    this.#busy = false;
  }

  #pauseMs(wasInStream: boolean): number {
    if (this.#areRecent(streamMin)) return wasInStream ? streamPauseMs : firstStreamPauseMs;
    return this.#areRecent(briskMin) ? briskPauseMs : 0;
  }

  /** Whether the last `count` commits were within a short time. */
  #areRecent(count: number): boolean {
    const first = this.#commitsAt[(this.#commits + streamMin - count) % streamMin] as number;
    return performance.now() - first < recentMs;
  }
}
