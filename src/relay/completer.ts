import { setTimeout as sleep } from 'node:timers/promises';
import { isConnectionFailure } from '../database/database-error.ts';
import type { ArrayQuery } from '../database/executor.ts';
import type { Failure } from '../outbox/fail.ts';
import { fail } from '../outbox/fail.ts';
import type { Settlement } from '../outbox/settle.ts';
import { settle } from '../outbox/settle.ts';
import type { Logger } from '../telemetry/logging.ts';
import { SparseLog } from '../telemetry/logging.ts';
import type { Held } from './dispatcher.ts';

/** What is to be written down about an event. */
export type Entry = { held: Held; settlement: Settlement } | { held: Held; failure: Failure };

export interface CompleterOptions {
  schema: string;
  query: ArrayQuery;
  /** Entries per statement. */
  flushSizeMax: number;
  logger: Logger;
  /** Called once the entry is durable. `fenced`: this relay no longer held the event, nothing was changed. */
  onWritten: (entry: Entry, fenced: boolean) => void;
}

/**
 * Writes results down, many at a time: whatever gathers while one statement is under way goes into the next. A flush
 * that fails is repeated until it succeeds or the lease is lost; repeating is safe because every change is fenced by
 * the token.
 */
export class Completer {
  readonly #options: CompleterOptions;
  readonly #log = new SparseLog();
  #entries: Entry[] = [];
  #flushing: Promise<void> | undefined;
  #token = '';
  #pending = 0;

  constructor(options: CompleterOptions) {
    this.#options = options;
  }

  /** Entries not yet durable. */
  get pending(): number {
    return this.#pending;
  }

  /** From now on results count under this token; without one they are void, as is what was gathered under another. */
  begin(token: string): void {
    this.#token = token;
    this.#entries = [];
    this.#pending = 0;
  }

  add(entry: Entry): void {
    if (this.#token === '') return;
    this.#entries.push(entry);
    this.#pending++;
    // One turn of the event loop later, so that results which arrive together are written together.
    this.#flushing ??= this.#flushSoon();
  }

  async #flushSoon(): Promise<void> {
    await new Promise<void>((resolve) => setImmediate(resolve));
    try {
      while (this.#entries.length > 0) {
        const token = this.#token;
        const batch = this.#entries.splice(0, this.#options.flushSizeMax);
        await this.#flush(batch, token);
      }
    } finally {
      this.#flushing = undefined; // Nothing can have been added since the look at the entries.
    }
  }

  /** Resolves when everything added so far is durable or void. */
  async drained(): Promise<void> {
    while (this.#flushing) await this.#flushing;
  }

  async #flush(batch: Entry[], token: string): Promise<void> {
    const missing = await this.#untilWritten(token, () => this.#write(token, batch));
    if (token !== this.#token) return;
    this.#pending -= batch.length;
    const fenced = missing.length > 0 ? new Set(missing) : undefined;
    for (const entry of batch) this.#options.onWritten(entry, fenced?.has(entry.held.seq) ?? false);
  }

  /** One statement for all of a batch: what it does is written together or not at all. */
  #write(token: string, batch: readonly Entry[]): Promise<string[]> {
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

  async #untilWritten(token: string, write: () => Promise<string[]>): Promise<readonly string[]> {
    let uncertain = false;
    for (let attempt = 1; token === this.#token; attempt++) {
      try {
        const missing = await write();
        // After a lost answer, what is missing was most likely written by the first try.
        return uncertain ? none : missing;
      } catch (error) {
        uncertain ||= isConnectionFailure(error);
        this.#log.say('flush', (suppressed) =>
          this.#options.logger.warn(
            { attempt, suppressed, err: String(error) },
            'cannot write results down, trying on',
          ),
        );
        await sleep(Math.min(1_000, 20 * 2 ** Math.min(attempt, 6)));
      }
    }
    return none;
  }
}

const none: readonly string[] = [];
