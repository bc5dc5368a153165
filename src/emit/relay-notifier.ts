import { AsyncLocalStorage } from 'node:async_hooks';
import type { Executor } from '../database/executor.ts';
import { notifyInProcess, notifyRelays, notifySql } from '../outbox/emitting/notify.ts';
import { emitterPacing } from '../outbox/emitting/notify-pacing.ts';

// The timer and the query below must not keep the AsyncLocalStorage of the request that happened to start them.
const outsideOfRequests = AsyncLocalStorage.snapshot();
const { recentMs, briskMin, briskPauseMs, streamMin, firstStreamPauseMs, streamPauseMs } = emitterPacing;

/**
 * Notifies relays after a commit: immediately in this process, and by NOTIFY in others. NOTIFY is sent after COMMIT on the
 * same connection, or on a side connection; the more commits there are, the more rarely. It is never sent inside a business
 * transaction: there it takes a global lock at commit and undoes group commit (8 writers: 13,400 commits/s without NOTIFY,
 * 4,500 with it inside, 13,200 this way). Losing one is harmless, because relays also poll.
 */
export class RelayNotifier {
  readonly #db: Executor;
  readonly #schema: string;
  readonly #notify: boolean;
  #pending = false;
  /** The times of the last commits, as a ring buffer. */
  readonly #commitsAt: number[] = new Array(streamMin).fill(Number.NEGATIVE_INFINITY);
  #commits = 0;
  #busy = false;

  constructor(db: Executor, schema: string, notify: boolean) {
    this.#db = db;
    this.#schema = schema;
    this.#notify = notify;
  }

  /**
   * The statement to send right after a COMMIT on its own connection, if it is time for a NOTIFY. The server runs it as soon
   * as it has committed, a round trip earlier than a NOTIFY that waits for the answer to COMMIT.
   */
  notifySqlForCommit(): string | undefined {
    if (!this.#notify) return undefined;
    // Counted before the answer: of many commits that are sent together, only the first few carry a NOTIFY.
    this.#count();
    if (this.#busy) return undefined;
    outsideOfRequests(() => void this.#send(true));
    return notifySql(this.#schema);
  }

  /** Call after a commit. `sentWithCommit`: whether `notifySqlForCommit()` returned a statement, if it was called. */
  notifyAfterCommit(sentWithCommit?: boolean): void {
    notifyInProcess(this.#schema);
    if (!this.#notify) return;
    if (sentWithCommit === undefined) this.#count();
    if (sentWithCommit) return;
    this.#pending = true;
    if (!this.#busy) outsideOfRequests(() => void this.#send(false));
  }

  #count(): void {
    this.#commitsAt[this.#commits++ % streamMin] = performance.now();
  }

  async #send(sentWithCommit: boolean): Promise<void> {
    this.#busy = true;
    let inStream = false;
    for (let sent = sentWithCommit; sent || this.#pending; sent = false) {
      if (!sent) {
        this.#pending = false;
        await notifyRelays(this.#db, this.#schema).catch(() => {});
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

  /** Whether the last `count` commits were within `recentMs`. */
  #areRecent(count: number): boolean {
    const first = this.#commitsAt[(this.#commits + streamMin - count) % streamMin] as number;
    return performance.now() - first < recentMs;
  }
}
