import { describe, expect, test } from 'vitest';
import { createInbox, createOutbox, fromPg } from '../../src/index.ts';
import { createMetrics, type Metrics } from '../../src/metrics/index.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const sampling = { sampleIntervalMs: 100 };

/** The value of one series, by its name and labels as /metrics writes them. */
function readSeries(metrics: Metrics, series: string): number | undefined {
  const line = metrics
    .text()
    .split('\n')
    .find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

describe('metrics of a relay', () => {
  test(
    'count what it does by event type and target, and measure each step',
    withScenario(async (scenario) => {
      const metrics = createMetrics(sampling);
      let calls = 0;
      await scenario.relay('a', {
        metrics,
        retry: { delaysMs: [1] },
        handlers: {
          good: { work: () => {} },
          flaky: {
            work: () => {
              calls++;
              if (calls === 1) throw new Error('first');
            },
          },
          bad: { work: () => Promise.reject(new Error('always')) },
        },
      });
      await scenario.emit([
        ...Array.from({ length: 5 }, (_, n) => ({ aggregateId: `g${n}`, type: 'good' })),
        { aggregateId: 'f', type: 'flaky' },
        { aggregateId: 'b', type: 'bad' },
      ]);
      await scenario.drained();
      const is = (series: string, value: number) =>
        until(() => readSeries(metrics, series) === value, { what: `${series} is ${value}` });
      await is('outbox_events_published_total{event_type="good"}', 5);
      await is('outbox_events_published_total{event_type="flaky"}', 1);
      await is('outbox_events_failed_total{event_type="flaky"}', 1);
      await is('outbox_events_failed_total{event_type="bad"}', 2);
      await is('outbox_events_retried_total{event_type="bad"}', 1);
      await is('outbox_events_dead_total{event_type="bad",reason="exhausted"}', 1);
      await is('outbox_task_processed_total{outcome="completed"}', 6);
      await is('outbox_task_processed_total{outcome="failed"}', 3);
      await is('outbox_task_duration_seconds_count', 9);
      await is('outbox_deliveries_total{target="good:work",outcome="delivered"}', 5);
      await is('outbox_deliveries_total{target="bad:work",outcome="failed"}', 2);
      await is('outbox_deliver_duration_seconds_count{target="flaky:work"}', 2);
      await is('outbox_event_latency_seconds_count{queue="default"}', 6);
      await is('outbox_events_claimed_total{queue="default"}', 9);
      const batches = readSeries(metrics, 'outbox_batch_size_count') ?? 0;
      expect(batches).toBeGreaterThan(0);
      await is('outbox_batch_duration_seconds_count', batches);
      await is('outbox_claim_duration_seconds_count', batches);
      expect(readSeries(metrics, 'outbox_batch_size_sum')).toBe(9);
      expect(readSeries(metrics, 'outbox_settle_duration_seconds_count')).toBeGreaterThan(0);
      await is('outbox_dead_letters', 1);
      expect(readSeries(metrics, 'outbox_relay_connected')).toBe(1);
    }),
  );

  test(
    'describe the outbox: pending, waiting, in flight, dead letters, oldest event, queues and relays',
    withScenario(async (scenario) => {
      const metrics = createMetrics(sampling);
      await scenario.emit([
        { aggregateId: 'a', type: 'other', queue: 'reports' },
        { aggregateId: 'b', type: 'other', queue: 'reports' },
        { aggregateId: 'c', delayMs: 3_600_000 },
      ]);
      await scenario.relay('a', { metrics, handlers: { scripted: { work: () => {} } } });
      await until(() => readSeries(metrics, 'outbox_events_pending') === 3, { what: 'the gauges are sampled' });
      expect(readSeries(metrics, 'outbox_queue_events{queue="reports",state="ready"}')).toBe(2);
      expect(readSeries(metrics, 'outbox_queue_events{queue="default",state="waiting"}')).toBe(1);
      expect(readSeries(metrics, 'outbox_tasks_pending'), 'a delayed event is not work yet').toBe(2);
      expect(readSeries(metrics, 'outbox_queue_relays{queue="reports"}')).toBe(0);
      expect(readSeries(metrics, 'outbox_relays_alive')).toBe(1);
      expect(readSeries(metrics, 'outbox_oldest_event_age_seconds')).toBeGreaterThan(0);
      expect(readSeries(metrics, 'outbox_queue_oldest_age_seconds{queue="reports"}')).toBeGreaterThan(0);
      expect(readSeries(metrics, 'outbox_queue_oldest_age_seconds{queue="default"}')).toBe(0);
    }),
  );

  test(
    'that describe the outbox come from one of several relays, and from another one when that stops',
    withScenario(async (scenario) => {
      const both = [createMetrics(sampling), createMetrics(sampling)];
      const options = { leaseMs: 1_500, maintenance: false } as const;
      const relays = await Promise.all(both.map((metrics, n) => scenario.relay(`r${n}`, { ...options, metrics })));
      const reporting = () => both.filter((metrics) => readSeries(metrics, 'outbox_relays_alive') !== undefined);
      await until(() => readSeries(reporting()[0] as Metrics, 'outbox_relays_alive') === 2, {
        what: 'one reports both',
      });
      const first = reporting();
      expect(first).toHaveLength(1);
      const index = both.indexOf(first[0] as Metrics);
      await relays[index]?.stop();
      await until(() => reporting().length > 0, { what: 'the other reports' });
      expect(reporting()).toEqual([both[1 - index]]);
    }),
  );

  test(
    'that describe the outbox are not reported while the database is unreachable',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const metrics = createMetrics(sampling);
      await scenario.relay('a', {
        connectionString: proxy.url(scenario.db.url),
        metrics,
        leaseMs: 1_000,
        logger: false,
      });
      const pending = () => readSeries(metrics, 'outbox_events_pending');
      await until(() => pending() === 0, { what: 'it reports' });
      proxy.refuse();
      proxy.cut();
      await until(() => pending() === undefined, { what: 'it reports nothing old' });
      expect(readSeries(metrics, 'outbox_relay_connected')).toBe(0);
    }),
  );
});

test(
  'metrics of emitters and consumers count events and duplicates',
  withScenario(async ({ db }) => {
    const metrics = createMetrics();
    const outbox = createOutbox({ db: fromPg(db.pool), metrics });
    const inbox = createInbox({ db: fromPg(db.pool), metrics });
    const eventId = await outbox.transaction((_tx, emit) => emit({ type: 't', aggregate: ['a', '1'], payload: 1 }));
    for (let n = 0; n < 3; n++) await inbox.onceOutside({ consumer: 'mail', eventId }, () => {});
    expect(readSeries(metrics, 'outbox_events_emitted_total{event_type="t"}')).toBe(1);
    expect(readSeries(metrics, 'outbox_inbox_events_total{consumer="mail",outcome="new"}')).toBe(1);
    expect(readSeries(metrics, 'outbox_inbox_events_total{consumer="mail",outcome="duplicate"}')).toBe(2);
  }),
);
