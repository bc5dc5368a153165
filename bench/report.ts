import { ratioWithinRounds } from './ratio.ts';

/** One figure. A comparison also names its baseline and says whether the goal is met. */
export interface Measurement {
  suite: string;
  name: string;
  /** The median of `rounds`, where there are any. */
  value: number;
  unit: string;
  /** The value of each round. Of a comparison: the ratio within each round. */
  rounds?: number[];
  baseline?: string;
  /** The median of the rounds' own ratios. */
  ratio?: number;
  /** One median by the other, which is how ratios were computed before they were taken within rounds. */
  ratioOfMedians?: number;
  /** What the value has to reach, or must not exceed. */
  goal?: number;
  goalIs?: 'atLeast' | 'atMost';
  pass?: boolean;
  /** The goal after this one. A run does not fail for it. */
  next?: number;
  nextPass?: boolean;
  /** Further figures of the same measurement, units in their names. */
  details?: Record<string, number>;
  /** How many events each process of a drain delivered, by round. */
  eventsByProcess?: number[][];
  versions: Record<string, string>;
  settings: Record<string, unknown>;
}

export type Goal = ({ atLeast: number } | { atMost: number }) & { next?: number };

/** The smallest value that at least this share of all values does not exceed: always one that was measured. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const found = sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
  if (found === undefined) throw new Error('There is no percentile of nothing.');
  return found;
}

/** Four significant digits: more would pretend a precision that no machine repeats. */
const rounded = (value: number): number => Number(value.toPrecision(4));

/** The figures as they are printed. Goals are judged before, by the values as they were measured. */
export function printed(measurement: Measurement): Measurement {
  const { value, rounds, ratio, ratioOfMedians, details } = measurement;
  return {
    ...measurement,
    value: rounded(value),
    ...(rounds && { rounds: rounds.map(rounded) }),
    ...(ratio !== undefined && { ratio: rounded(ratio) }),
    ...(ratioOfMedians !== undefined && { ratioOfMedians: rounded(ratioOfMedians) }),
    ...(details && {
      details: Object.fromEntries(Object.entries(details).map(([name, detail]) => [name, rounded(detail)])),
    }),
  };
}

export function judged(measurement: Measurement, goal: Goal): Measurement {
  const { value } = measurement;
  const goalIs = 'atLeast' in goal ? 'atLeast' : 'atMost';
  const reaches = (limit: number) => (goalIs === 'atLeast' ? value >= limit : value <= limit);
  const limit = 'atLeast' in goal ? goal.atLeast : goal.atMost;
  return {
    ...measurement,
    goal: limit,
    goalIs,
    pass: reaches(limit),
    ...(goal.next !== undefined && { next: goal.next, nextPass: reaches(goal.next) }),
  };
}

/** How a measurement with a baseline is written, so that every suite does it alike. Without a goal it only informs. */
export function compare(measured: Measurement, baseline: Measurement, goal?: Goal): Measurement {
  const { ratio, ratioOfMedians, rounds } = ratioWithinRounds(
    measured.rounds ?? [measured.value],
    baseline.rounds ?? [baseline.value],
  );
  const comparison: Measurement = {
    suite: measured.suite,
    name: `${measured.name} against ${baseline.name}`,
    value: ratio,
    unit: 'x',
    rounds,
    baseline: baseline.name,
    ratio,
    ratioOfMedians,
    versions: { ...baseline.versions, ...measured.versions },
    settings: measured.settings,
  };
  return goal ? judged(comparison, goal) : comparison;
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
  const { goal, pass, next, nextPass, ratioOfMedians, details, eventsByProcess } = measurement;
  const parts: string[] = [];
  const spread = spreadText(measurement);
  if (spread) parts.push(spread);
  if (ratioOfMedians !== undefined) parts.push(`of medians ${shown(ratioOfMedians)}`);
  for (const [name, value] of Object.entries(details ?? {})) parts.push(`${name} ${shown(value)}`);
  if (eventsByProcess) parts.push(`events ${eventsByProcess.map((each) => each.map(shown).join(' + ')).join(' | ')}`);
  if (goal !== undefined) parts.push(`goal: ${goalText(measurement)}, ${pass ? 'met' : 'MISSED'}`);
  if (next !== undefined) parts.push(`next: ${shown(next)}, ${nextPass ? 'met' : 'not yet'}`);
  return parts.join(', ');
}

const shown = (value: number): string => value.toLocaleString('en');

/** The rounds of a figure from the lowest to the highest, and of a comparison with the median between them. */
export function spreadText({ rounds, value, baseline }: Measurement): string {
  if (!rounds || rounds.length < 2) return '';
  const [low, high] = [Math.min(...rounds), Math.max(...rounds)].map(shown);
  return baseline === undefined ? `${low} to ${high}` : `${low} / ${shown(value)} / ${high}`;
}

export function goalText({ goal, goalIs }: Measurement): string {
  return `${goalIs === 'atMost' ? 'at most' : 'at least'} ${goal?.toLocaleString('en')}`;
}
