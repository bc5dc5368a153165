import { setTimeout as sleep } from 'node:timers/promises';
import { isConnectionFailure, isRefusedValue } from '../../database/database-error.ts';
import type { ArrayQuery } from '../../database/executor.ts';
import type { Failure } from '../../outbox/delivering/fail.ts';
import { fail } from '../../outbox/delivering/fail.ts';
import type { Settlement } from '../../outbox/delivering/settle.ts';
import { settle } from '../../outbox/delivering/settle.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import type { EventOutcome } from '../event/outcome.ts';
import { asDeadLetter, withPlainErrors, withPlainNames } from './refused-entry.ts';
import type { SettleEntry, TransitionOptions } from './transition.ts';
import { delayOf, toTransition } from './transition.ts';

export interface SettlerOptions extends TransitionOptions {
  schema: string;
  query: ArrayQuery;
  logger: Logger;
  /**
   * Called once the entry is durable. `fenced`: this relay no longer owned the event, nothing was changed. `instead`: what
   * was written, where the database refuses the entry itself.
   */
  onSettled: (entry: SettleEntry, fenced: boolean, instead?: SettleEntry) => void;
  /** Called when a statement has been written, for metrics. */
  onFlushed?: ((tookMs: number) => void) | undefined;
}

/** Entries per statement. */
const flushSizeMax = 2_000;

/**
 * Writes outcomes to the database, many at a time: outcomes that arrive while one statement is in flight go into the next. A
 * statement that fails is repeated until it succeeds or the lease is lost. That is safe because every change is fenced by the
 * token.
 *
 * It does not help where the database refuses a value, e.g. a character that its encoding lacks. Such a batch is written again
 * with its error texts in ASCII, then half by half, and an entry that is refused alone becomes a dead letter.
 */
export class Settler {
  readonly #options: SettlerOptions;
  readonly #log = new SparseLog();
  #entries: SettleEntry[] = [];
  #flushing: Promise<void> | undefined;
  #token = '';
  #pending = 0;
  /** Entries since the start, and how many of these have been written or dropped. */
  #added = 0;
  #flushed = 0;
  #waiting: { added: number; resolve: () => void }[] = [];

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  /** Entries not yet durable. */
  get pending(): number {
    return this.#pending;
  }

  /** Writes under this fencing token from now on. Without one nothing is written; outcomes under another token are dropped. */
  useToken(token: string): void {
    this.#token = token;
    this.#flushed += this.#entries.length;
    this.#entries = [];
    this.#pending = 0;
  }

  /** Writes an outcome. Returns how long until the event is tried again, if there is a delay. */
  settle(event: ClaimedEvent, outcome: EventOutcome): number | undefined {
    const entry = toTransition(event, outcome, this.#options);
    if (outcome.kind === 'delivered' && outcome.isSettled) {
      this.#settled(entry);
      return undefined;
    }
    this.add(entry);
    return delayOf(entry);
  }

  /** It is durable already. Reported in a later turn, like all others. */
  #settled(entry: SettleEntry): void {
    const token = this.#token;
    if (token === '') return;
    this.#pending++;
    queueMicrotask(() => this.#written(token, [entry], none));
  }

  /** Resolves when everything that was settled before this call is durable, or dropped. */
  written(): Promise<void> {
    if (this.#flushing === undefined) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ added: this.#added, resolve }));
  }

  add(entry: SettleEntry): void {
    if (this.#token === '') return;
    this.#entries.push(entry);
    this.#pending++;
    this.#added++;
    // In the next turn of the event loop, so that outcomes that arrive together are written together.
    this.#flushing ??= this.#flushSoon();
  }

  async #flushSoon(): Promise<void> {
    await new Promise<void>((resolve) => setImmediate(resolve));
    try {
      while (this.#entries.length > 0) {
        const token = this.#token;
        const batch = this.#entries.splice(0, flushSizeMax);
        await this.#flush(batch, token);
        this.#flushed += batch.length;
        this.#tellWaiting();
      }
    } finally {
      this.#flushing = undefined; // Nothing can have been added since the loop ended.
      this.#tellWaiting();
    }
  }

  #tellWaiting(): void {
    while ((this.#waiting[0]?.added ?? Number.POSITIVE_INFINITY) <= this.#flushed) this.#waiting.shift()?.resolve();
  }

  /** Resolves when everything settled so far is durable, or dropped. */
  async drained(): Promise<void> {
    while (this.#flushing) await this.#flushing;
  }

  /**
   * In the order of the batch, however it is divided: the written part is always a prefix, never an event without the
   * earlier ones of its key.
   */
  async #flush(batch: readonly SettleEntry[], token: string): Promise<void> {
    let refused = await this.#attempt(token, batch);
    if (refused === undefined) return;
    this.#logRefused(batch, refused.error);
    const plain = batch.map(withPlainErrors);
    if (plain.some((entry, index) => entry !== batch[index])) refused = await this.#attempt(token, batch, plain);
    if (refused === undefined) return;
    const [entry] = batch;
    if (batch.length === 1 && entry) {
      await this.#writeRefused(token, entry, refused.error);
      return;
    }
    const middle = Math.ceil(batch.length / 2);
    await this.#flush(batch.slice(0, middle), token);
    await this.#flush(batch.slice(middle), token);
  }

  async #writeRefused(token: string, entry: SettleEntry, error: unknown): Promise<void> {
    if ((await this.#attempt(token, [entry], [withPlainNames(entry)])) === undefined) return;
    const instead = asDeadLetter(entry, error, this.#options.poison);
    if ((await this.#attempt(token, [entry], [instead], instead)) === undefined) return;
    // Nothing can be written about this event. No other event waits for it.
    void this.#untilWritten(token, () => this.#write(token, [instead])).then((missing) => {
      this.#written(token, [entry], missing, instead);
    });
  }

  /** Writes the batch in this form. Returns the error if the database refuses it; otherwise it is written, or dropped. */
  async #attempt(
    token: string,
    batch: readonly SettleEntry[],
    form: readonly SettleEntry[] = batch,
    instead?: SettleEntry,
  ): Promise<{ error: unknown } | undefined> {
    let missing: readonly string[];
    try {
      missing = await this.#untilWritten(token, () => this.#write(token, form), isRefusedValue);
    } catch (error) {
      return { error };
    }
    this.#written(token, batch, missing, instead);
    return undefined;
  }

  #logRefused(batch: readonly SettleEntry[], error: unknown): void {
    this.#log.say('refused', (suppressed) =>
      this.#options.logger.warn(
        { results: batch.length, suppressed, error: errorText(error) },
        'database refused a result, writing it in another form',
      ),
    );
  }

  #written(token: string, batch: readonly SettleEntry[], missing: readonly string[], instead?: SettleEntry): void {
    if (token !== this.#token) return;
    this.#pending -= batch.length;
    const fenced = missing.length > 0 ? new Set(missing) : undefined;
    for (const entry of batch) this.#options.onSettled(entry, fenced?.has(entry.event.seq) ?? false, instead);
  }

  /** One statement for the whole batch: it is written as a whole or not at all (G4). */
  #write(token: string, batch: readonly SettleEntry[]): Promise<string[]> {
    const { query, schema } = this.#options;
    const settlements: Settlement[] = [];
    const failures: Failure[] = [];
    for (const entry of batch) {
      if ('settlement' in entry) settlements.push(entry.settlement);
      else failures.push(entry.failure);
    }
    if (failures.length === 0) return settle(query, schema, token, settlements);
    return fail(query, schema, token, failures, settlements);
  }

  /** Throws only errors for which `isFinal` is true. */
  async #untilWritten(
    token: string,
    write: () => Promise<string[]>,
    isFinal: (error: unknown) => boolean = () => false,
  ): Promise<readonly string[]> {
    let uncertain = false;
    for (let attempt = 1; token === this.#token; attempt++) {
      try {
        const begunAt = performance.now();
        const missing = await write();
        this.#options.onFlushed?.(performance.now() - begunAt);
        // After a lost answer, the missing ones were most likely written by the first try.
        return uncertain ? none : missing;
      } catch (error) {
        if (isFinal(error)) throw error;
        uncertain ||= isConnectionFailure(error);
        this.#log.say('flush', (suppressed) =>
          this.#options.logger.warn({ attempt, suppressed, error: errorText(error) }, 'cannot write results, retrying'),
        );
        await sleep(Math.min(1_000, 20 * 2 ** Math.min(attempt, 6)));
      }
    }
    return none;
  }
}

const none: readonly string[] = [];
