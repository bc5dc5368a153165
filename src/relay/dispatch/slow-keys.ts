import type { Executor } from '../../database/executor.ts';
import { deferKeys, undeferKeys } from '../../outbox/delivering/defer.ts';
import type { Dispatcher } from './dispatcher.ts';

const none: ReadonlySet<string> = new Set();
const deferEveryMs = 500;
const keysAtOnceMax = 8;
/** How many events of a key that is still slow are called back at once, and of one that is not. */
const recallSlowMax = 64;
const recallMax = 20_000;
/** And of one that has recovered: what is called back comes before newer events of others, so not too many. */
const recallRecoveredMax = 4_000;

/**
 * Keeps an aggregate with a long backlog out of the way of all others: it may hold a share of the relay's buffer only,
 * and it is not claimed while it has enough. If its deliveries are slow, the rest of a long backlog is deferred, so that
 * claims need not walk over it; when it runs short, or is fast again, its events are called back.
 */
export class SlowKeys {
  readonly #dispatcher: Dispatcher;
  readonly #db: Executor;
  readonly #schema: string;
  readonly #deferred = new Set<string>();
  readonly #recovered = new Set<string>();
  #spared = none;
  #deferredAt = Number.NEGATIVE_INFINITY;

  constructor(dispatcher: Dispatcher, db: Executor, schema: string) {
    this.#dispatcher = dispatcher;
    this.#db = db;
    this.#schema = schema;
  }

  /**
   * Before each claim. Answers the keys to leave alone: at once while no event that has a key is held, because what is awaited
   * before a claim is what a single event waits for.
   */
  putAside(): readonly string[] | Promise<readonly string[]> {
    if (this.#dispatcher.hasLines || this.#deferred.size > 0 || this.#recovered.size > 0) return this.#putAside();
    this.#spared = none;
    return [];
  }

  async #putAside(): Promise<string[]> {
    const enough = this.#dispatcher.shedCrowded();
    this.#spared = enough;
    if (this.#deferred.size > 0) await this.#callBack(enough);
    if (this.#recovered.size > 0) await this.#callRecoveredBack();
    const now = performance.now();
    if (enough.size > 0 && now - this.#deferredAt >= deferEveryMs) {
      this.#deferredAt = now;
      const slow = [...enough].filter((key) => this.#dispatcher.isSlow(key)).slice(0, keysAtOnceMax);
      const deferred = slow.length > 0 ? await deferKeys(this.#db, this.#schema, slow) : [];
      for (const key of deferred) this.#deferred.add(key);
    }
    return [...enough];
  }

  /** Whether events of this key were left alone because it had enough, and it could use more now. */
  wantsMore(key: string): boolean {
    const mayHaveMore = this.#spared.has(key) || this.#deferred.has(key) || this.#recovered.has(key);
    return mayHaveMore && !this.#dispatcher.hasEnough(key);
  }

  /** An event that had failed was delivered: what stepped aside behind it need not wait any longer. */
  recovered(key: string): void {
    this.#recovered.add(key);
  }

  /** What stepped aside behind this key's failing event stays there. */
  failed(key: string): void {
    this.#recovered.delete(key);
  }

  /** Before the relay stops: the next one shall find everything ready. */
  async callAllBack(): Promise<void> {
    if (this.#deferred.size === 0) return;
    await undeferKeys(this.#db, this.#schema, [...this.#deferred], recallMax);
    this.#deferred.clear();
  }

  /** A part at a time, until nothing is left: whatever has its turn too early would find its predecessor waiting. */
  async #callRecoveredBack(): Promise<void> {
    const short = [...this.#recovered].filter((key) => !this.#dispatcher.hasEnough(key));
    if (short.length === 0) return;
    const more = new Set(await undeferKeys(this.#db, this.#schema, short, recallRecoveredMax));
    for (const key of short) if (!more.has(key)) this.#recovered.delete(key);
  }

  async #callBack(enough: ReadonlySet<string>): Promise<void> {
    const short = [...this.#deferred].filter((key) => !enough.has(key)).slice(0, keysAtOnceMax);
    const stillSlow = short.filter((key) => this.#dispatcher.isSlow(key));
    const fast = short.filter((key) => !stillSlow.includes(key));
    if (stillSlow.length > 0) await undeferKeys(this.#db, this.#schema, stillSlow, recallSlowMax);
    if (fast.length > 0) await undeferKeys(this.#db, this.#schema, fast, recallMax);
    for (const key of fast) this.#deferred.delete(key);
  }
}
