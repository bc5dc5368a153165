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
  /** What the value has to reach, or must not exceed. */
  goal?: number;
  goalIs?: 'atLeast' | 'atMost';
  pass?: boolean;
  /** Further figures of the same measurement, units in their names. */
  details?: Record<string, number>;
  versions: Record<string, string>;
  settings: Record<string, unknown>;
}

export type Goal = { atLeast: number } | { atMost: number };

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) throw new Error('There is no median of nothing.');
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/** The smallest value that at least this share of all values does not exceed: always one that was measured. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const found = sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
  if (found === undefined) throw new Error('There is no percentile of nothing.');
  return found;
}

/** Four significant digits: more would pretend a precision that no machine repeats. */
export const rounded = (value: number): number => Number(value.toPrecision(4));

/** The value as it was measured decides, not the rounded one that is printed. */
export function judged(measurement: Measurement, goal: Goal, exact = measurement.value): Measurement {
  return 'atLeast' in goal
    ? { ...measurement, goal: goal.atLeast, goalIs: 'atLeast', pass: exact >= goal.atLeast }
    : { ...measurement, goal: goal.atMost, goalIs: 'atMost', pass: exact <= goal.atMost };
}

/** How a measurement with a baseline is written, so that every suite does it alike. Without a goal it only informs. */
export function compare(measured: Measurement, baseline: Measurement, goal?: Goal): Measurement {
  const ratio = measured.value / baseline.value;
  const comparison: Measurement = {
    suite: measured.suite,
    name: `${measured.name} against ${baseline.name}`,
    value: rounded(ratio),
    unit: 'x',
    baseline: baseline.name,
    ratio: rounded(ratio),
    versions: { ...baseline.versions, ...measured.versions },
    settings: measured.settings,
  };
  return goal ? judged(comparison, goal, ratio) : comparison;
}

export const jsonLine = (measurement: Measurement): string => JSON.stringify(measurement);

/** The other way round, of a whole file. A line that is no measurement is an error, and is named. */
export function readJsonLines(text: string): Measurement[] {
  return text.split('\n').flatMap((line, index) => {
    if (line.trim() === '') return [];
    let read: Partial<Measurement> | undefined;
    try {
      read = JSON.parse(line);
    } catch {
      // Told below.
    }
    if (typeof read?.suite !== 'string' || typeof read.name !== 'string' || typeof read.value !== 'number') {
      throw new Error(`Line ${index + 1} is no measurement: ${line.slice(0, 60)}`);
    }
    return [read as Measurement];
  });
}

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

function notes(measurement: Measurement): string {
  const { rounds, goal, pass, details } = measurement;
  const parts: string[] = [];
  if (rounds && rounds.length > 1) {
    parts.push(`${Math.min(...rounds).toLocaleString('en')} to ${Math.max(...rounds).toLocaleString('en')}`);
  }
  for (const [name, value] of Object.entries(details ?? {})) parts.push(`${name} ${value.toLocaleString('en')}`);
  if (goal !== undefined) parts.push(`goal: ${goalText(measurement)}, ${pass ? 'met' : 'MISSED'}`);
  return parts.join(', ');
}

export function goalText({ goal, goalIs }: Measurement): string {
  return `${goalIs === 'atMost' ? 'at most' : 'at least'} ${goal?.toLocaleString('en')}`;
}
