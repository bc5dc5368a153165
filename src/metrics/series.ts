import type { MetricType } from './definitions.ts';

export type Labels = Readonly<Record<string, string>>;

/** A series of a metric: one combination of labels. */
export type Series = { readonly labels: Labels; readonly value: number } | HistogramCell;

export interface MetricFamily {
  readonly name: string;
  readonly type: MetricType;
  readonly help: string;
  readonly series: readonly Series[];
}

/** A number that grows. */
export class CounterCell {
  readonly labels: Labels;
  value = 0;

  constructor(labels: Labels) {
    this.labels = labels;
  }
}

/** Counts values by their size. */
export class HistogramCell {
  readonly labels: Labels;
  readonly bounds: readonly number[];
  /** How many values each bucket has, and the last one those above all bounds. Not cumulative. */
  readonly counts: number[];
  sum = 0;
  count = 0;
  readonly #forward: ((value: number) => void) | undefined;

  constructor(labels: Labels, bounds: readonly number[], forward?: (value: number) => void) {
    this.labels = labels;
    this.bounds = bounds;
    this.counts = new Array(bounds.length + 1).fill(0);
    this.#forward = forward;
  }

  observe(value: number): void {
    let bucket = 0;
    while (bucket < this.bounds.length && value > (this.bounds[bucket] as number)) bucket++;
    this.counts[bucket] = (this.counts[bucket] as number) + 1;
    this.sum += value;
    this.count++;
    this.#forward?.(value);
  }
}

/** One value as Prometheus reads it: a histogram has one per bucket, the sum and the count. */
export interface Sample {
  readonly metricName: string;
  readonly labels: Labels;
  readonly value: number;
}

export function samplesOf({ name, series }: MetricFamily): Sample[] {
  return series.flatMap((each): Sample[] => {
    if (!(each instanceof HistogramCell)) return [{ metricName: name, labels: each.labels, value: each.value }];
    let seen = 0;
    const buckets = each.counts.map((count, index): Sample => {
      seen += count;
      const le = index < each.bounds.length ? String(each.bounds[index]) : '+Inf';
      return { metricName: `${name}_bucket`, labels: { ...each.labels, le }, value: seen };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels: each.labels, value: each.sum },
      { metricName: `${name}_count`, labels: each.labels, value: each.count },
    ];
  });
}
