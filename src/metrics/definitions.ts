/** What Prometheus calls the type of a metric. */
export type MetricType = 'counter' | 'gauge' | 'histogram';

export interface MetricDefinition {
  readonly type: MetricType;
  readonly help: string;
  readonly labels: readonly string[];
  /** Upper bounds of a histogram, without infinity. */
  readonly buckets?: readonly number[];
  /** How gauges of names over the limit are joined in `other`. Default `sum`. */
  readonly join?: 'sum' | 'max';
  /** Series that exist from the start, with the value 0: `rate()` misses the first increase of a series that appears later. */
  readonly initial?: readonly Readonly<Record<string, string>>[];
}

/** The default buckets of Prometheus clients. */
const defaultBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** For work that may take minutes: the alert OutboxSlowProcessing compares a quantile with 30 s. */
const longBuckets = [0.001, ...defaultBuckets, 30, 60, 120, 300, 600, 1_800, 3_600];
/** For single statements. */
const statementBuckets = [0.0005, 0.001, 0.0025, ...defaultBuckets];
const sizeBuckets = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000];

/**
 * Every metric of Postcommit. docs/metrics.md lists the same; a test keeps the two equal, and another one finds every name that
 * alerts and Grafana panels use here.
 */
export const metricDefinitions = {
  // What relays have done. Each process counts its own.
  outbox_events_published_total: counter('Events delivered to all of their targets.', ['event_type']),
  outbox_events_failed_total: counter('Failed attempts to deliver an event.', ['event_type']),
  outbox_events_retried_total: counter('Failed attempts after which the event is retried.', ['event_type']),
  outbox_events_dead_total: counter('Events that became dead letters.', ['event_type', 'reason']),
  outbox_events_shelved_total: counter('Events put on the shelf: a destination is down or paused.', ['event_type']),
  outbox_events_claimed_total: counter('Events that relays claimed.', ['queue']),
  outbox_events_taken_over_total: counter('Events taken over from relays that ended.', []),
  outbox_events_released_total: counter('Events put back into the queue without an attempt.', []),
  outbox_events_cancelled_total: counter('Events cancelled while a relay had claimed them.', []),
  outbox_results_fenced_total: counter('Results that came too late: another relay owned the event.', []),
  outbox_deliveries_total: counter('Outcomes of events at a destination or handler.', ['target', 'outcome']),
  outbox_task_processed_total: {
    ...counter('Attempts to process an event, by outcome.', ['outcome']),
    initial: [{ outcome: 'completed' }, { outcome: 'failed' }],
  },
  outbox_task_duration_seconds: histogram('Time of one attempt, from its start to its outcome.', [], longBuckets),
  outbox_deliver_duration_seconds: histogram('Time of one event at a destination or handler.', ['target'], longBuckets),
  outbox_event_latency_seconds: histogram('Time from emit until the delivery is recorded.', ['queue'], longBuckets),
  outbox_batch_duration_seconds: histogram(
    'Time from the claim of a batch until its last event is settled.',
    [],
    defaultBuckets,
  ),
  outbox_batch_size: histogram('Events per claimed batch.', [], sizeBuckets),
  outbox_claim_duration_seconds: histogram('Time of a claim that returned events.', [], statementBuckets),
  outbox_settle_duration_seconds: histogram('Time of a statement that records results.', [], statementBuckets),

  // What one relay process is doing now.
  outbox_relay_in_flight: gauge('Deliveries in flight in this relay.', ['queue']),
  outbox_relay_buffered: gauge('Events that this relay has claimed and not started.', ['queue']),
  outbox_relay_connected: gauge('Whether all database connections of this relay are open.', []),
  outbox_relay_leading: gauge('Whether this relay does maintenance for all.', []),
  outbox_relay_lane: gauge('How this relay finds events, and why: 1 for the lane in use.', ['lane', 'reason']),

  // The outbox in the database. One relay reports these for all.
  outbox_events_pending: gauge('Events not yet delivered: ready, waiting, in flight or on the shelf.', []),
  outbox_tasks_pending: gauge('Events that wait to be processed: due, or in backoff after a failed attempt.', []),
  outbox_events_in_flight: gauge('Events that relays have claimed.', []),
  outbox_events_shelved: gauge('Events that wait only for destinations that are down or paused.', []),
  outbox_oldest_event_age_seconds: {
    ...gauge('For how long the oldest due event has been due; 0 if none is.', []),
    join: 'max',
  },
  outbox_dead_letters: gauge('Dead letters that are neither retried nor discarded.', []),
  outbox_blocked_aggregates: gauge('Aggregates that wait for a blocking dead letter.', []),
  outbox_queue_events: gauge('Undelivered events of a queue, without those on the shelf.', ['queue', 'state']),
  outbox_queue_oldest_age_seconds: {
    ...gauge('For how long the oldest ready event of a queue has been due; 0 if none is.', ['queue']),
    join: 'max',
  },
  outbox_queue_relays: { ...gauge('Live relays that work a queue.', ['queue']), join: 'max' },
  outbox_queue_paused: { ...gauge('Whether an operator paused a queue.', ['queue']), join: 'max' },
  outbox_destination_down: {
    ...gauge('Whether the circuit breaker of a destination is open.', ['destination']),
    join: 'max',
  },
  outbox_destination_paused: { ...gauge('Whether an operator paused a destination.', ['destination']), join: 'max' },
  outbox_destination_waiting: gauge('Events on the shelf of a destination.', ['destination']),
  outbox_relays_alive: gauge('Relays that are alive.', []),
  outbox_partitions: gauge('Partitions of the log; 0 if it is not partitioned.', []),
  outbox_slot_retained_bytes: gauge('WAL that the server keeps for a replication slot.', ['slot']),
  outbox_slot_lag_bytes: gauge('WAL that the consumer of a replication slot has not confirmed.', ['slot']),
  outbox_slot_active: { ...gauge('Whether a replication slot is in use.', ['slot']), join: 'max' },

  // What emitters and consumers have done. Each process counts its own.
  outbox_events_emitted_total: counter('Events passed to emit, including in transactions that rolled back.', [
    'event_type',
  ]),
  outbox_inbox_events_total: counter('Events that reached the inbox, by outcome.', ['consumer', 'outcome']),
} as const satisfies Record<string, MetricDefinition>;

export type MetricName = keyof typeof metricDefinitions;
type OfType<T extends MetricType> = {
  [Name in MetricName]: (typeof metricDefinitions)[Name]['type'] extends T ? Name : never;
}[MetricName];
export type CounterName = OfType<'counter'>;
export type GaugeName = OfType<'gauge'>;
export type HistogramName = OfType<'histogram'>;

export const metricNames = Object.keys(metricDefinitions) as MetricName[];

function counter(help: string, labels: readonly string[]) {
  return { type: 'counter' as const, help, labels };
}

function gauge(help: string, labels: readonly string[]) {
  return { type: 'gauge' as const, help, labels };
}

function histogram(help: string, labels: readonly string[], buckets: readonly number[]) {
  return { type: 'histogram' as const, help, labels, buckets };
}
