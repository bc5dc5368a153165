import type { Metrics } from '../../metrics/metrics.ts';
import type { CounterCell, HistogramCell } from '../../metrics/series.ts';
import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { EventOutcome } from '../event/outcome.ts';
import type { SettleEntry } from '../settle/transition.ts';

/** A claimed batch of which some events are not settled. */
interface Batch {
  begunAt: number;
  open: number;
}

interface TypeCounters {
  published: CounterCell;
  failed: CounterCell;
  retried: CounterCell;
  shelved: CounterCell;
}

interface TargetMeters {
  duration: HistogramCell;
  outcomes: Map<string, CounterCell>;
}

/** The types and targets whose counters are kept at hand; those above are looked up each time. */
const kept = 1_000;

/** Counts what a relay does, for its metrics. A relay without metrics has none. */
export class RelayMeter {
  readonly #metrics: Metrics;
  readonly #types = new Map<string, TypeCounters>();
  readonly #targets = new Map<string, TargetMeters>();
  readonly #latencies = new Map<string, HistogramCell>();
  readonly #batchOf = new WeakMap<ClaimedRow, Batch>();
  readonly #completed: CounterCell;
  readonly #failed: CounterCell;
  readonly #attempts: HistogramCell;
  readonly #batches: HistogramCell;
  readonly #batchSizes: HistogramCell;
  readonly #claims: HistogramCell;
  readonly #settles: HistogramCell;

  constructor(metrics: Metrics) {
    this.#metrics = metrics;
    this.#completed = metrics.counter('outbox_task_processed_total', { outcome: 'completed' });
    this.#failed = metrics.counter('outbox_task_processed_total', { outcome: 'failed' });
    this.#attempts = metrics.histogram('outbox_task_duration_seconds');
    this.#batches = metrics.histogram('outbox_batch_duration_seconds');
    this.#batchSizes = metrics.histogram('outbox_batch_size');
    this.#claims = metrics.histogram('outbox_claim_duration_seconds');
    this.#settles = metrics.histogram('outbox_settle_duration_seconds');
  }

  claimed(
    queue: string,
    rows: readonly ClaimedRow[],
    { takenOver, tookMs }: { takenOver: number; tookMs: number },
  ): void {
    this.#metrics.counter('outbox_events_claimed_total', { queue }).value += rows.length;
    this.#metrics.counter('outbox_events_taken_over_total').value += takenOver;
    this.#claims.observe(tookMs / 1_000);
    this.#batchSizes.observe(rows.length);
    const batch: Batch = { begunAt: performance.now() - tookMs, open: rows.length };
    for (const row of rows) this.#batchOf.set(row, batch);
  }

  /** The outcome of an event is durable, or came too late. */
  settled(entry: SettleEntry, fenced: boolean): void {
    const { event } = entry;
    this.#endInBatch(event);
    if (fenced) {
      this.#metrics.counter('outbox_results_fenced_total').value++;
      return;
    }
    if (entry.kind === 'released') {
      this.#metrics.counter('outbox_events_released_total').value++;
      return;
    }
    const counters = this.#ofType(event.type);
    switch (entry.kind) {
      case 'delivered':
        counters.published.value++;
        this.#completed.value++;
        // The clocks of this host and of the database may differ.
        this.#latency(event.queue).observe(Math.max(0, Date.now() - event.createdAtMs) / 1_000);
        return;
      case 'unavailable':
        counters.shelved.value++;
        return;
      case 'failed':
        counters.retried.value++;
        break;
      default: {
        const { reason } = entry.failure;
        this.#metrics.counter('outbox_events_dead_total', { event_type: event.type, reason: reason ?? '' }).value++;
      }
    }
    counters.failed.value++;
    this.#failed.value++;
  }

  cancelled(row: ClaimedRow): void {
    this.#endInBatch(row);
    this.#metrics.counter('outbox_events_cancelled_total').value++;
  }

  /** Measures one attempt: returns what to call with its outcome. */
  timed(done: (outcome: EventOutcome) => void): (outcome: EventOutcome) => void {
    const begunAt = performance.now();
    return (outcome) => {
      if (wasTried(outcome.kind)) this.#attempts.observe((performance.now() - begunAt) / 1_000);
      done(outcome);
    };
  }

  /** What one destination or handler did with an event. */
  targetEnded(target: string, outcome: EventOutcome['kind'], tookMs: number): void {
    let meters = this.#targets.get(target);
    if (!meters) {
      meters = {
        duration: this.#metrics.histogram('outbox_deliver_duration_seconds', { target }),
        outcomes: new Map(),
      };
      if (this.#targets.size < kept) this.#targets.set(target, meters);
    }
    let counter = meters.outcomes.get(outcome);
    if (!counter) {
      counter = this.#metrics.counter('outbox_deliveries_total', { target, outcome });
      meters.outcomes.set(outcome, counter);
    }
    counter.value++;
    if (wasTried(outcome)) meters.duration.observe(tookMs / 1_000);
  }

  /** A statement with results has been written. */
  flushed(tookMs: number): void {
    this.#settles.observe(tookMs / 1_000);
  }

  #endInBatch(row: ClaimedRow): void {
    const batch = this.#batchOf.get(row);
    if (!batch) return;
    this.#batchOf.delete(row);
    batch.open--;
    if (batch.open === 0) this.#batches.observe((performance.now() - batch.begunAt) / 1_000);
  }

  #ofType(type: string): TypeCounters {
    let counters = this.#types.get(type);
    if (!counters) {
      const labels = { event_type: type };
      counters = {
        published: this.#metrics.counter('outbox_events_published_total', labels),
        failed: this.#metrics.counter('outbox_events_failed_total', labels),
        retried: this.#metrics.counter('outbox_events_retried_total', labels),
        shelved: this.#metrics.counter('outbox_events_shelved_total', labels),
      };
      if (this.#types.size < kept) this.#types.set(type, counters);
    }
    return counters;
  }

  #latency(queue: string): HistogramCell {
    let latency = this.#latencies.get(queue);
    if (!latency) {
      latency = this.#metrics.histogram('outbox_event_latency_seconds', { queue });
      if (this.#latencies.size < kept) this.#latencies.set(queue, latency);
    }
    return latency;
  }
}

/** Whether a target was asked to take the event, and its answer is known. */
function wasTried(outcome: EventOutcome['kind']): boolean {
  return outcome === 'delivered' || outcome === 'failed' || outcome === 'rejected';
}
