import { PostcommitError } from '../../errors.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { delivered, released, type TargetOutcome } from '../event/outcome.ts';
import type { BatchedHandler } from './handler-options.ts';
import type { BatchContext } from './handlers.ts';

/** An event on its way to a batch handler. */
export interface BatchEntry {
  event: DeliveredEvent;
  claimed: ClaimedEvent;
  done: (outcome: TargetOutcome) => void;
}

/** The events of one call of `handleBatch`. */
export class HandlerBatch {
  readonly handler: BatchedHandler;
  readonly entries: BatchEntry[] = [];
  readonly openedAt = performance.now();
  readonly #cancelled = new Set<string>();
  /** What the handler returned for each event. */
  outcomes: readonly TargetOutcome[] = [];

  constructor(handler: BatchedHandler) {
    this.handler = handler;
  }

  /** Returns whether this event, and with it every event of the batch, is cancelled. */
  cancel(seq: string): boolean {
    if (!this.entries.some(({ claimed }) => claimed.seq === seq)) return false;
    this.#cancelled.add(seq);
    return this.#cancelled.size === this.entries.length;
  }

  async call({ signal, handler }: BatchContext): Promise<void> {
    const { handle } = this.handler.batch;
    const events = this.entries.map(({ event }) => event);
    this.outcomes = this.#read(await handle(events, { signal, handler }));
  }

  #read(returned: unknown): TargetOutcome[] {
    const { entries } = this;
    if (returned === undefined || returned === null) return entries.map(() => delivered);
    if (!Array.isArray(returned)) throw badOutcomes(`It returned a value of type ${typeof returned}.`);
    if (returned.length !== entries.length) {
      throw badOutcomes(`It returned ${returned.length} outcomes for ${entries.length} events.`);
    }
    return Array.from(returned as unknown[], (outcome, index) => this.#readOne(outcome, index));
  }

  #readOne(outcome: unknown, index: number): TargetOutcome {
    const { retry } = this.handler;
    const { kind, error } = (outcome ?? {}) as { kind?: unknown; error?: unknown };
    if (kind === 'delivered') return delivered;
    if (kind === 'failed') return { kind, error, retry };
    if (kind === 'rejected') return { kind, error };
    return { kind: 'failed', error: badOutcomes(`Outcome ${index} has the kind ${String(kind)}.`), retry };
  }
}

/** Gathers the events that start in one turn of the event loop into batches, one open batch per handler. */
export class HandlerBatches {
  readonly #run: (batch: HandlerBatch) => void;
  readonly #open = new Map<BatchedHandler, HandlerBatch>();

  /** `run` is called once with each batch that has gathered its events. */
  constructor(run: (batch: HandlerBatch) => void) {
    this.#run = run;
  }

  /**
   * An event that has failed before is handled alone: if it is what makes the handler throw, the events of its batch must not use
   * up their attempts with it.
   */
  add(handler: BatchedHandler, entry: BatchEntry): void {
    const { limiter, batch: settings } = handler;
    const isAlone = entry.claimed.attempts > 0;
    const open = isAlone ? undefined : this.#open.get(handler);
    const now = performance.now();
    if (open === undefined && limiter.waitMs(now) > 0) {
      entry.done({ kind: 'released', delayMs: limiter.releaseMs(0, now) });
      return;
    }
    const batch = open ?? new HandlerBatch(handler);
    batch.entries.push(entry);
    if (open === undefined) limiter.begin(now);
    if (isAlone) {
      this.#run(batch);
      return;
    }
    if (batch.entries.length >= settings.sizeMax) {
      this.#close(batch);
    } else if (open === undefined) {
      this.#open.set(handler, batch);
      setImmediate(() => this.#open.get(handler) === batch && this.#close(batch));
    }
  }

  /** Releases what has gathered. */
  abandon(): void {
    const batches = [...this.#open.values()];
    this.#open.clear();
    for (const { handler, entries, openedAt } of batches) {
      handler.limiter.end(performance.now() - openedAt);
      for (const { done } of entries) done(released);
    }
  }

  #close(batch: HandlerBatch): void {
    this.#open.delete(batch.handler);
    this.#run(batch);
  }
}

function badOutcomes(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OUTCOMES', detail);
}
