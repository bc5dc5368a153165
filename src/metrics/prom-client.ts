import type { MetricName } from './definitions.ts';
import { metricDefinitions, metricNames } from './definitions.ts';
import type { MetricFamily } from './series.ts';
import { samplesOf } from './series.ts';

/** What is used of a `Registry` of prom-client. */
export interface Registry {
  // biome-ignore lint/suspicious/noExplicitAny: prom-client's own type is a union of its four classes.
  registerMetric(metric: any): void;
}

interface Collected {
  family(name: MetricName): MetricFamily;
}

/** The metrics in each registry. Several outboxes can share one: its metrics then have the series of all. */
const members = new WeakMap<Registry, Collected[]>();

/**
 * Adds the metrics to a registry. Each is an object that a registry asks for its values, as prom-client's own are, so nothing is
 * counted twice and prom-client itself is not loaded.
 */
export function registerWith(registry: Registry, metrics: Collected): void {
  const known = members.get(registry);
  if (known) {
    known.push(metrics);
    return;
  }
  const all = [metrics];
  for (const name of metricNames) {
    const { type, help } = metricDefinitions[name];
    registry.registerMetric({
      name,
      help,
      type,
      aggregator: type === 'gauge' ? 'max' : 'sum',
      async get() {
        const values = all.flatMap((each) => samplesOf(each.family(name)));
        // An OpenMetrics registry appends _total itself, and has renamed this object when it did so before.
        const exposedName = this.name;
        const plain = values.map((sample) =>
          sample.metricName === name ? { ...sample, metricName: exposedName } : sample,
        );
        return { name: exposedName, help, type, aggregator: this.aggregator, values: plain };
      },
      reset() {},
    });
  }
  members.set(registry, all);
}
