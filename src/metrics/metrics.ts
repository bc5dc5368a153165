import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { unknownOption } from '../suggest.ts';
import type { CounterName, GaugeName, HistogramName, MetricDefinition, MetricName } from './definitions.ts';
import { metricDefinitions, metricNames } from './definitions.ts';
import { expose } from './exposition.ts';
import type { Meter } from './open-telemetry.ts';
import { HistogramForwarder, observeWith } from './open-telemetry.ts';
import type { Registry } from './prom-client.ts';
import { registerWith } from './prom-client.ts';
import type { Labels, MetricFamily, Series } from './series.ts';
import { CounterCell, HistogramCell } from './series.ts';

export interface MetricsOptions {
  /** A registry of prom-client, 15 or later: the metrics appear beside the application's own. Default: none. */
  registry?: Registry;
  /** A meter of OpenTelemetry, e.g. `metrics.getMeter('postcommit')` of `@opentelemetry/api`. Default: none. */
  meter?: Meter;
  /** Labels of every series, e.g. `{ outbox: 'orders' }` in a process that serves several outboxes. Default: none. */
  labels?: Labels;
  /**
   * The most values that each label may have: event types, targets, queues, destinations, consumers, slots. Any further ones are
   * counted together, as `other`. Higher: more detail, and more series to store. From 1 to 10,000. Default 100.
   */
  labelValuesMax?: number;
  /**
   * How often one relay reads the gauges that describe the outbox from the database. From 100 to 3,600,000. Default 15,000: as
   * often as Prometheus usually scrapes.
   */
  sampleIntervalMs?: number;
}

/** A value of a gauge, with the labels that its definition has. */
export interface GaugeSample {
  name: GaugeName;
  labels: Labels;
  value: number;
}

/** Called for each scrape: returns what it measures now. */
export type GaugeSource = () => readonly GaugeSample[];

const optionNames: readonly string[] = ['registry', 'meter', 'labels', 'labelValuesMax', 'sampleIntervalMs'];
const otherValue = 'other';
/** Labels whose values come from outside. Postcommit itself chooses the others. */
const openLabels = new Set(['event_type', 'target', 'queue', 'destination', 'consumer', 'slot']);
/** Names of event types may have 1,000 bytes. */
const labelLengthMax = 200;

/**
 * Counts what relays, emitters and consumers of one outbox do in this process. Pass it to `createRelay`, `createOutbox` and
 * `createInbox`. Made by `createMetrics`.
 */
export class Metrics {
  readonly sampleIntervalMs: number;
  /** For the `content-type` header of a response with `text()`. */
  readonly contentType = 'text/plain; version=0.0.4; charset=utf-8';
  readonly #constant: Labels;
  readonly #valuesMax: number;
  readonly #known = new Map<string, Set<string>>();
  readonly #cells = new Map<MetricName, Map<string, CounterCell | HistogramCell>>();
  readonly #sources = new Set<GaugeSource>();
  readonly #forwarder: HistogramForwarder | undefined;
  #measured: Map<string, Series[]> | undefined;

  constructor(options: MetricsOptions = {}) {
    const unknown = unknownOption(options, optionNames);
    if (unknown !== undefined) throw bad(unknown);
    this.#constant = checkLabels(options.labels ?? {});
    this.#valuesMax = whole('labelValuesMax', options.labelValuesMax ?? 100, 1, 10_000);
    this.sampleIntervalMs = whole('sampleIntervalMs', options.sampleIntervalMs ?? 15_000, 100, 3_600_000);
    this.#forwarder = options.meter && new HistogramForwarder(options.meter);
    for (const name of metricNames) {
      const { type, labels, initial = labels.length === 0 ? [{}] : [] } = metricDefinitions[name] as MetricDefinition;
      for (const series of initial) {
        if (type === 'counter') this.counter(name as CounterName, series);
        if (type === 'histogram') this.histogram(name as HistogramName, series);
      }
    }
    if (options.registry) registerWith(options.registry, this);
    if (options.meter) observeWith(options.meter, this);
  }

  /** The counter with these labels. Keep it where it is counted often. */
  counter(name: CounterName, labels: Labels = {}): CounterCell {
    return this.#cell(name, labels, (bounded) => new CounterCell(bounded)) as CounterCell;
  }

  /** The histogram with these labels. Keep it where it is counted often. */
  histogram(name: HistogramName, labels: Labels = {}): HistogramCell {
    return this.#cell(name, labels, (bounded) => {
      const { buckets } = metricDefinitions[name];
      return new HistogramCell(bounded, buckets, this.#forwarder?.of(name, bounded));
    }) as HistogramCell;
  }

  /** Adds gauges that are measured for each scrape. Returns a function that removes them. */
  addGauges(source: GaugeSource): () => void {
    this.#sources.add(source);
    return () => void this.#sources.delete(source);
  }

  /** One metric with its series now. */
  family(name: MetricName): MetricFamily {
    const { type, help } = metricDefinitions[name];
    const isGauge = type === 'gauge';
    const series = isGauge ? (this.#gauges().get(name) ?? []) : [...(this.#cells.get(name)?.values() ?? [])];
    return { name, type, help, series };
  }

  /** All metrics in the text format of Prometheus. */
  text(): string {
    return expose(metricNames.map((name) => this.family(name)));
  }

  /** Measured once for a scrape: registries and meters ask for each metric by itself, in the same turn of the event loop. */
  #gauges(): Map<string, Series[]> {
    if (!this.#measured) {
      this.#measured = this.#measure();
      setImmediate(() => {
        this.#measured = undefined;
      });
    }
    return this.#measured;
  }

  #measure(): Map<string, Series[]> {
    const found = new Map<string, Map<string, { labels: Labels; value: number }>>();
    for (const source of this.#sources) {
      for (const { name, labels, value } of source()) {
        const series = found.get(name) ?? new Map();
        found.set(name, series);
        const bounded = this.#bounded(labels);
        const key = keyOf(bounded);
        const before = series.get(key);
        const joined = (metricDefinitions[name] as MetricDefinition).join ?? 'sum';
        // Those of relays add up, if several share these metrics; the others describe the outbox, which all of them read.
        const addsUp = name.startsWith('outbox_relay_') || Object.values(bounded).includes(otherValue);
        if (before === undefined) series.set(key, { labels: bounded, value });
        else if (!addsUp) before.value = value;
        else before.value = joined === 'max' ? Math.max(before.value, value) : before.value + value;
      }
    }
    return new Map([...found].map(([name, series]) => [name, [...series.values()]]));
  }

  #cell(name: MetricName, labels: Labels, make: (bounded: Labels) => CounterCell | HistogramCell) {
    const bounded = this.#bounded(labels);
    let cells = this.#cells.get(name);
    if (!cells) {
      cells = new Map();
      this.#cells.set(name, cells);
    }
    const key = keyOf(bounded);
    let cell = cells.get(key);
    if (!cell) {
      cell = make(bounded);
      cells.set(key, cell);
    }
    return cell;
  }

  #bounded(labels: Labels): Labels {
    const bounded: Record<string, string> = { ...this.#constant };
    for (const [label, value] of Object.entries(labels)) bounded[label] = this.#boundedValue(label, value);
    return bounded;
  }

  #boundedValue(label: string, value: string): string {
    if (!openLabels.has(label)) return value;
    let known = this.#known.get(label);
    if (!known) {
      known = new Set();
      this.#known.set(label, known);
    }
    const cut = value.length > labelLengthMax ? value.slice(0, labelLengthMax) : value;
    const text = cut.toWellFormed();
    if (known.has(text)) return text;
    if (known.size >= this.#valuesMax) return otherValue;
    known.add(text);
    return text;
  }
}

/**
 * Makes the metrics of an outbox. Pass them to the relay, the outbox and the inbox of this process; `relay.fetch` and the option
 * `http` of the relay serve them, or take `text()`.
 *
 * @example
 * import { createMetrics } from 'postcommit/metrics';
 * const metrics = createMetrics();
 * const outbox = createOutbox({ db: fromPg(pool), metrics });
 */
export function createMetrics(options: MetricsOptions = {}): Metrics {
  return new Metrics(options);
}

/** The metrics of several outboxes in one text. Each has a label of its own. */
export function textOfAll(all: readonly Metrics[]): string {
  return expose(
    metricNames.map((name) => {
      const families = all.map((metrics) => metrics.family(name));
      const { type, help } = metricDefinitions[name];
      return { name, type, help, series: families.flatMap(({ series }) => series) };
    }),
  );
}

function keyOf(labels: Labels): string {
  return JSON.stringify(Object.values(labels));
}

function checkLabels(labels: Labels): Labels {
  for (const [name, value] of Object.entries(labels)) {
    if (!/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(name) || name.startsWith('__'))
      throw bad(`labels has ${shown(name)}: not a label.`);
    if (typeof value !== 'string') throw bad(`The label ${name} must be a text. Got ${shown(value)}.`);
    const taken = metricNames.find((metric) => (metricDefinitions[metric].labels as readonly string[]).includes(name));
    if (taken !== undefined || name === 'le') throw bad(`The label ${name} is taken${taken ? ` by ${taken}` : ''}.`);
  }
  return { ...labels };
}

function whole(name: string, value: number, min: number, max: number): number {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw bad(`${name} must be a whole number from ${min} to ${max}. Got ${shown(value)}.`);
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
