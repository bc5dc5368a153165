import type { Executor } from '../../database/executor.ts';
import { deferKeys, undeferKeys } from '../../outbox/delivering/defer.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import { deferEveryMs, deferKeysMax, undeferMax, undeferRecoveredMax, undeferSlowMax } from './tuning.ts';

/**
 * Keeps an aggregate with a long backlog from delaying all others: it gets only its share of the relay's buffer, and it is
 * not claimed while it has enough. If its deliveries are slow, the rest of a long backlog is deferred in the database, so
 * that claims need not walk over it; when it runs short, or is fast again, its events are undeferred.
 */
export class SlowKeys {
  readonly #dispatcher: Pick<Dispatcher, 'mayHaveExcess' | 'releaseExcess' | 'isSlow' | 'hasEnough'>;
  readonly #db: Executor;
  readonly #schema: string;
  readonly #deferred = new Set<string>();
  readonly #recovered = new Set<string>();
  /** What the last claim of each queue excluded. */
  readonly #excluded = new Map<string, ReadonlySet<string>>();
  #deferredAt = Number.NEGATIVE_INFINITY;

  constructor(dispatcher: Dispatcher, db: Executor, schema: string) {
    this.#dispatcher = dispatcher;
    this.#db = db;
    this.#schema = schema;
  }

  /**
   * Called before each claim, with its queue. Returns the keys to exclude from it. Without a promise while nothing is
   * buffered that could be excess: any delay here delays a single event.
   */
  excludedKeys(queue: string): readonly string[] | Promise<readonly string[]> {
    if (this.#dispatcher.mayHaveExcess || this.#deferred.size > 0 || this.#recovered.size > 0)
      return this.#exclude(queue);
    this.#excluded.delete(queue);
    return [];
  }

  async #exclude(queue: string): Promise<string[]> {
    const enough = this.#dispatcher.releaseExcess(queue);
    this.#excluded.set(queue, enough);
    if (this.#deferred.size > 0) await this.#undefer(enough);
    if (this.#recovered.size > 0) await this.#undeferRecovered();
    const now = performance.now();
    if (enough.size > 0 && now - this.#deferredAt >= deferEveryMs) {
      this.#deferredAt = now;
      const slow = [...enough].filter((key) => this.#dispatcher.isSlow(key)).slice(0, deferKeysMax);
      const deferred = slow.length > 0 ? await deferKeys(this.#db, this.#schema, slow) : [];
      for (const key of deferred) this.#deferred.add(key);
    }
    return [...enough];
  }

  /** Whether this key was excluded because it had enough events, and could use more now. */
  wantsMore(key: string): boolean {
    const mayHaveMore = this.#isExcluded(key) || this.#deferred.has(key) || this.#recovered.has(key);
    return mayHaveMore && !this.#dispatcher.hasEnough(key);
  }

  #isExcluded(key: string): boolean {
    for (const keys of this.#excluded.values()) if (keys.has(key)) return true;
    return false;
  }

  /** An event that had failed before is delivered: those deferred behind it need not wait any longer. */
  recovered(key: string): void {
    this.#recovered.add(key);
  }

  /** An event failed: those deferred behind it stay deferred. */
  failed(key: string): void {
    this.#recovered.delete(key);
  }

  /** Called before the relay stops: the next relay finds everything ready. */
  async undeferAll(): Promise<void> {
    if (this.#deferred.size === 0) return;
    await undeferKeys(this.#db, this.#schema, [...this.#deferred], undeferMax);
    this.#deferred.clear();
  }

  /** In parts, until nothing is left: an event that is ready too early is claimed while its predecessor waits. */
  async #undeferRecovered(): Promise<void> {
    const short = [...this.#recovered].filter((key) => !this.#dispatcher.hasEnough(key));
    if (short.length === 0) return;
    const more = new Set(await undeferKeys(this.#db, this.#schema, short, undeferRecoveredMax));
    for (const key of short) if (!more.has(key)) this.#recovered.delete(key);
  }

  async #undefer(enough: ReadonlySet<string>): Promise<void> {
    const short = [...this.#deferred].filter((key) => !enough.has(key)).slice(0, deferKeysMax);
    const stillSlow = short.filter((key) => this.#dispatcher.isSlow(key));
    const fast = short.filter((key) => !stillSlow.includes(key));
    if (stillSlow.length > 0) await undeferKeys(this.#db, this.#schema, stillSlow, undeferSlowMax);
    if (fast.length > 0) await undeferKeys(this.#db, this.#schema, fast, undeferMax);
    for (const key of fast) this.#deferred.delete(key);
  }
}
