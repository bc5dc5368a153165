import { Registry } from 'prom-client';
import { expect, test } from 'vitest';
import { createMetrics, type Meter } from '../../src/metrics/index.ts';

test('writes the text format of Prometheus, with hostile label values escaped', () => {
  const metrics = createMetrics({ labels: { outbox: 'orders' } });
  metrics.counter('outbox_events_published_total', { event_type: 'a"b\\c\nd' }).value += 3;
  metrics.histogram('outbox_batch_size').observe(2);
  metrics.histogram('outbox_batch_size').observe(7_000);
  const text = metrics.text();
  expect(text).toContain('# TYPE outbox_events_published_total counter\n');
  expect(text).toContain('outbox_events_published_total{outbox="orders",event_type="a\\"b\\\\c\\nd"} 3\n');
  expect(text).toContain('outbox_batch_size_bucket{outbox="orders",le="1"} 0\n');
  expect(text).toContain('outbox_batch_size_bucket{outbox="orders",le="2"} 1\n');
  expect(text).toContain('outbox_batch_size_bucket{outbox="orders",le="5000"} 1\n');
  expect(text).toContain('outbox_batch_size_bucket{outbox="orders",le="+Inf"} 2\n');
  expect(text).toContain('outbox_batch_size_sum{outbox="orders"} 7002\noutbox_batch_size_count{outbox="orders"} 2\n');
});

test('counters that rate() needs from the start are there with 0', () => {
  const text = createMetrics().text();
  expect(text).toContain('outbox_task_processed_total{outcome="completed"} 0\n');
  expect(text).toContain('outbox_task_processed_total{outcome="failed"} 0\n');
  expect(text).toContain('outbox_batch_duration_seconds_bucket{le="10"} 0\n');
});

test('label values above the limit are counted together as other', () => {
  const metrics = createMetrics({ labelValuesMax: 2 });
  for (const type of ['a', 'b', 'c', 'd', 'a']) {
    metrics.counter('outbox_events_published_total', { event_type: type }).value++;
  }
  metrics.addGauges(() =>
    ['p', 'q', 'r', 's'].flatMap((queue, index) => [
      { name: 'outbox_queue_events' as const, labels: { queue, state: 'ready' }, value: index + 1 },
      { name: 'outbox_queue_oldest_age_seconds' as const, labels: { queue }, value: index + 1 },
    ]),
  );
  const lines = metrics.text().split('\n');
  const seriesOf = (name: string) => lines.filter((line) => line.startsWith(`${name}{`));
  expect(seriesOf('outbox_events_published_total')).toEqual([
    'outbox_events_published_total{event_type="a"} 2',
    'outbox_events_published_total{event_type="b"} 1',
    'outbox_events_published_total{event_type="other"} 2',
  ]);
  expect(seriesOf('outbox_queue_events')).toContain('outbox_queue_events{queue="other",state="ready"} 7');
  expect(seriesOf('outbox_queue_oldest_age_seconds')).toContain('outbox_queue_oldest_age_seconds{queue="other"} 4');
  expect(seriesOf('outbox_task_processed_total'), 'values that Postcommit chooses are not limited').toHaveLength(2);
});

test('gauges disappear with their source', () => {
  const metrics = createMetrics();
  const remove = metrics.addGauges(() => [{ name: 'outbox_events_pending', labels: {}, value: 5 }]);
  expect(metrics.family('outbox_events_pending').series).toMatchObject([{ value: 5 }]);
  remove();
  return new Promise<void>((resolve) =>
    setImmediate(() => {
      expect(metrics.family('outbox_events_pending').series).toEqual([]);
      resolve();
    }),
  );
});

test('a registry of prom-client exposes the same series, of several outboxes together', async () => {
  const registry = new Registry();
  const orders = createMetrics({ registry, labels: { outbox: 'orders' } });
  const billing = createMetrics({ registry, labels: { outbox: 'billing' } });
  orders.counter('outbox_events_published_total', { event_type: 'a' }).value = 3;
  billing.counter('outbox_events_published_total', { event_type: 'a' }).value = 4;
  orders.histogram('outbox_batch_size').observe(1);
  const lines = (await registry.metrics()).split('\n').filter((line) => line !== '');
  const own = [...orders.text().split('\n'), ...billing.text().split('\n')].filter((line) => line !== '');
  expect(new Set(lines)).toEqual(new Set(own));
  expect(lines).toContain('outbox_events_published_total{outbox="billing",event_type="a"} 4');
});

test('a registry with the OpenMetrics format has counters under their names', async () => {
  const registry = new Registry();
  registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE as never);
  const metrics = createMetrics({ registry });
  metrics.counter('outbox_events_published_total', { event_type: 'a' }).value = 3;
  for (const scrape of [1, 2]) {
    const text = await registry.metrics();
    expect(text, `scrape ${scrape}`).toContain('\noutbox_events_published_total{event_type="a"} 3\n');
  }
});

test('a meter of OpenTelemetry gets the same values', () => {
  const callbacks = new Map<string, (result: { observe: (value: number, attributes?: object) => void }) => void>();
  const recorded: unknown[] = [];
  const observable = (name: string) => ({ addCallback: (callback: never) => void callbacks.set(name, callback) });
  const meter: Meter = {
    createHistogram: (name, options) => ({
      record: (value, attributes) => void recorded.push([name, options?.unit, value, attributes]),
    }),
    createObservableCounter: observable,
    createObservableGauge: observable,
  };
  const metrics = createMetrics({ meter });
  metrics.counter('outbox_events_dead_total', { event_type: 'a', reason: 'rejected' }).value++;
  metrics.addGauges(() => [{ name: 'outbox_events_pending', labels: {}, value: 9 }]);
  metrics.histogram('outbox_event_latency_seconds', { queue: 'default' }).observe(0.5);
  const observed = (name: string) => {
    const values: unknown[] = [];
    callbacks.get(name)?.({ observe: (value, attributes) => void values.push([value, attributes]) });
    return values;
  };
  expect(observed('outbox_events_dead')).toEqual([[1, { event_type: 'a', reason: 'rejected' }]]);
  expect(observed('outbox_events_pending')).toEqual([[9, {}]]);
  expect(recorded).toEqual([['outbox_event_latency_seconds', 's', 0.5, { queue: 'default' }]]);
});

test.each([
  [{ labels: { queue: 'x' } }, /queue is taken/],
  [{ labels: { 'a-b': 'x' } }, /not a label/],
  [{ labelValuesMax: 0 }, /labelValuesMax/],
  [{ sampleIntervalMs: 1 }, /sampleIntervalMs/],
  [{ register: {} }, /no option register/],
])('refuses %j', (options, message) => {
  expect(() => createMetrics(options as never)).toThrow(message);
});

test('relays that share metrics add up, and what they both read of the outbox does not', () => {
  const metrics = createMetrics();
  for (const inFlight of [3, 4]) {
    metrics.addGauges(() => [
      { name: 'outbox_relay_in_flight', labels: { queue: 'default' }, value: inFlight },
      { name: 'outbox_events_pending', labels: {}, value: 9 },
    ]);
  }
  expect(metrics.family('outbox_relay_in_flight').series).toMatchObject([{ value: 7 }]);
  expect(metrics.family('outbox_events_pending').series).toMatchObject([{ value: 9 }]);
});
