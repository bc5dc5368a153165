import { AsyncLocalStorage } from 'node:async_hooks';
import type { Executor } from '../database/executor.ts';
import type { InsertableEvent } from '../outbox/emitting/insert.ts';
import { allQueues, notifyInProcess, notifyRelays, notifySql } from '../outbox/emitting/notify.ts';
import { emitterPacing } from '../outbox/emitting/notify-pacing.ts';
import { defaultQueue } from '../queue-name.ts';

// The timer and the query below must not keep the AsyncLocalStorage of the request that happened to start them.
const outsideOfRequests = AsyncLocalStorage.snapshot();
const { recentMs, briskMin, briskPauseMs, streamMin, firstStreamPauseMs, streamPauseMs } = emitterPacing;

/**
 * Notifies relays after a commit: immediately in this process, and by NOTIFY in others. NOTIFY is sent after COMMIT on the
 * same connection, or on a side connection, and rarely in a stream of commits. It is never sent inside a business
 * transaction: there it takes a global lock at commit and undoes group commit (8 writers: 13,400 commits/s without NOTIFY,
 * 4,500 with it inside, 13,200 this way). Losing one is harmless, because relays also poll.
 */
export class RelayNotifier {
  readonly #db: Executor;
  readonly #schema: string;
  readonly #notify: boolean;
  readonly #byQueue = new Map<string, QueueNotifier>();

  constructor(db: Executor, schema: string, notify: boolean) {
    this.#db = db;
    this.#schema = schema;
    this.#notify = notify;
  }

  /** Each queue has its own: many commits of one must not make notifications for another rare. */
  of(queue: string): QueueNotifier {
    let notifier = this.#byQueue.get(queue);
    if (notifier === undefined) {
      if (this.#byQueue.size >= queuesMax) this.#byQueue.clear();
      notifier = new QueueNotifier(this.#db, this.#schema, this.#notify, queue);
      this.#byQueue.set(queue, notifier);
    }
    return notifier;
  }

  /**
   * The statement to send right after a COMMIT on its own connection, if it is time for a NOTIFY. The server runs it as soon
   * as it has committed, a round trip earlier than a NOTIFY that waits for the answer to COMMIT. Only for one queue: events of
   * several are rare in one transaction.
   */
  notifySqlForCommit(queues: readonly string[]): string | undefined {
    return queues.length === 1 ? this.of(queues[0] as string).sqlForCommit() : undefined;
  }

  /** Call after a commit of events of these queues, and say whether `notifySqlForCommit()` returned a statement, if it was called. */
  notifyAfterCommit(queues: readonly string[], sentWithCommit?: boolean): void {
    if (queues.length === 1) this.of(queues[0] as string).notifyAfterCommit(sentWithCommit);
    else for (const queue of queues) this.of(queue).afterCommit();
  }
}

/** How many queues a notifier keeps the pace of. */
const queuesMax = 1_000;

/** Notifies the relays that work one queue. */
class QueueNotifier {
  readonly #db: Executor;
  readonly #schema: string;
  readonly #notify: boolean;
  readonly #queue: string;
  /** The same function for every emit, so that several emits of one transaction notify once. */
  readonly afterCommit = () => this.notifyAfterCommit();
  #pending = false;
  /** The times of the last commits, as a ring buffer. */
  readonly #commitsAt: number[] = new Array(streamMin).fill(Number.NEGATIVE_INFINITY);
  #commits = 0;
  #busy = false;

  constructor(db: Executor, schema: string, notify: boolean, queue: string) {
    this.#db = db;
    this.#schema = schema;
    this.#notify = notify;
    this.#queue = queue;
  }

  sqlForCommit(): string | undefined {
    if (!this.#notify) return undefined;
    // Counted before the answer: of many commits that are sent together, only the first few carry a NOTIFY.
    this.#count();
    if (this.#busy) return undefined;
    outsideOfRequests(() => void this.#send(true));
    return notifySql(this.#schema, this.#queue);
  }

  notifyAfterCommit(sentWithCommit?: boolean): void {
    notifyInProcess(this.#schema, this.#queue === allQueues ? undefined : [this.#queue]);
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
        await notifyRelays(this.#db, this.#schema, this.#queue).catch(() => {});
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

/** The queues whose relays deliver these events. */
export function queuesOf(events: readonly InsertableEvent[]): string[] {
  if (events.length === 1) return [events[0]?.queue ?? defaultQueue];
  return [...new Set(events.map(({ queue }) => queue ?? defaultQueue))];
}
