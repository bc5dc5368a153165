/** One figure. A comparison also names its baseline and says whether the goal is met. */
export interface Measurement {
  suite: string;
  name: string;
  value: number;
  unit: string;
  /** The single rounds behind a median. */
  rounds?: number[];
  baseline?: string;
  ratio?: number;
  /** What the ratio has to reach. */
  goal?: number;
  pass?: boolean;
  /** Further figures of the same measurement, units in their names. */
  details?: Record<string, number>;
  versions: Record<string, string>;
  settings: Record<string, unknown>;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) throw new Error('There is no median of nothing.');
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/** Four significant digits: more would pretend a precision that no machine repeats. */
export const rounded = (value: number): number => Number(value.toPrecision(4));

/** How a measurement with a baseline is written, so that every suite does it alike. */
export function compare(measured: Measurement, baseline: Measurement, goal: number): Measurement {
  const ratio = measured.value / baseline.value;
  return {
    suite: measured.suite,
    name: `${measured.name} against ${baseline.name}`,
    value: rounded(ratio),
    unit: 'x',
    baseline: baseline.name,
    ratio: rounded(ratio),
    goal,
    pass: ratio >= goal,
    versions: { ...baseline.versions, ...measured.versions },
    settings: measured.settings,
  };
}

export const jsonLine = (measurement: Measurement): string => JSON.stringify(measurement);

/** The figures of one suite for people. */
export function table(measurements: readonly Measurement[]): string {
  const rows = measurements.map((measurement) => [
    measurement.name,
    `${measurement.value.toLocaleString('en')} ${measurement.unit}`,
    notes(measurement),
  ]);
  const widths = [0, 1].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map(([name = '', value = '', note = '']) =>
      `  ${name.padEnd(widths[0] ?? 0)}  ${value.padStart(widths[1] ?? 0)}  ${note}`.trimEnd(),
    )
    .join('\n');
}

function notes({ rounds, goal, pass, details }: Measurement): string {
  const parts: string[] = [];
  if (rounds && rounds.length > 1) {
    parts.push(`${Math.min(...rounds).toLocaleString('en')} to ${Math.max(...rounds).toLocaleString('en')}`);
  }
  for (const [name, value] of Object.entries(details ?? {})) parts.push(`${name} ${value.toLocaleString('en')}`);
  if (goal !== undefined) parts.push(`goal: at least ${goal}, ${pass ? 'met' : 'MISSED'}`);
  return parts.join(', ');
}
