import type { HistogramName, MetricName } from './definitions.ts';
import { metricDefinitions, metricNames } from './definitions.ts';
import type { Labels, MetricFamily } from './series.ts';
import { HistogramCell } from './series.ts';

interface Observed {
  observe(value: number, attributes?: Record<string, string>): void;
}

interface Observable {
  addCallback(callback: (result: Observed) => void): void;
}

interface InstrumentOptions {
  description?: string;
  unit?: string;
  advice?: { explicitBucketBoundaries?: number[] };
}

interface Recorder {
  record(value: number, attributes?: Record<string, string>): void;
}

/** What is used of a `Meter` of `@opentelemetry/api`. */
export interface Meter {
  createHistogram(name: string, options?: InstrumentOptions): Recorder;
  createObservableCounter(name: string, options?: InstrumentOptions): Observable;
  createObservableGauge(name: string, options?: InstrumentOptions): Observable;
}

/** Reports counters and gauges whenever a reader of the meter collects. */
export function observeWith(meter: Meter, metrics: { family(name: MetricName): MetricFamily }): void {
  for (const name of metricNames) {
    const { type, help } = metricDefinitions[name];
    if (type === 'histogram') continue;
    const options = { description: help, ...unitOf(name) };
    const instrument =
      // Exporters append _total.
      type === 'counter'
        ? meter.createObservableCounter(name.replace(/_total$/, ''), options)
        : meter.createObservableGauge(name, options);
    instrument.addCallback((result) => {
      for (const series of metrics.family(name).series) {
        if (!(series instanceof HistogramCell)) result.observe(series.value, { ...series.labels });
      }
    });
  }
}

/** OpenTelemetry cannot read a histogram of ours: each value is recorded in one of its own, too. */
export class HistogramForwarder {
  readonly #meter: Meter;
  readonly #histograms = new Map<HistogramName, Recorder>();

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  of(name: HistogramName, labels: Labels): (value: number) => void {
    let histogram = this.#histograms.get(name);
    if (!histogram) {
      const { help, buckets } = metricDefinitions[name];
      const advice = { explicitBucketBoundaries: [...buckets] };
      histogram = this.#meter.createHistogram(name, { description: help, advice, ...unitOf(name) });
      this.#histograms.set(name, histogram);
    }
    const recorder = histogram;
    const attributes = { ...labels };
    return (value) => recorder.record(value, attributes);
  }
}

function unitOf(name: string): { unit?: string } {
  if (name.endsWith('_seconds')) return { unit: 's' };
  return name.endsWith('_bytes') ? { unit: 'By' } : {};
}
