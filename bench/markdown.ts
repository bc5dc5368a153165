import { type Chart, charts } from './charts.ts';
import { goalText, type Measurement, spreadText } from './report.ts';

/** What a suite asks, for readers who have not seen it run. */
const suites: Record<string, { title: string; text: string }> = {
  emit: {
    title: 'What an event adds to a business transaction',
    text: 'Time from before the first statement to the answer to COMMIT, of a transaction that inserts one order; for each database client, of its own transaction with three INSERTs. Styles take turns of some transactions each, in random order. No relay runs.',
  },
  inbox: {
    title: 'What the inbox adds to the transaction of a consumer',
    text: 'Time from before the first statement to the answer to COMMIT, of a transaction that books an event: it locks an account, changes its balance and inserts a booking. Styles take turns of some transactions each, in random order.',
  },
  'notify-trigger': {
    title: 'What the trigger for plain INSERTs costs',
    text: 'Eight writers insert events with plain SQL, one INSERT per transaction, into an outbox without `npx postcommit migrate --notify-trigger`, into one with it, and into one with it from sessions that turn it off. They take turns in random order; one session listens, no relay runs. Then the time from the answer to an INSERT to the first line of the handler, with the trigger and a relay that polls once a minute.',
  },
  drain: {
    title: 'Draining a backlog',
    text: 'One process empties a backlog through a handler that does nothing, each contender in its best mode. Postcommit keeps the order of each aggregate and writes delivery records; the others keep no order.',
  },
  latency: {
    title: 'From commit to handler',
    text: 'Each transaction inserts one order and one event; emitter and worker are two processes. The clock runs from the answer to COMMIT to the first line of the handler.',
  },
  scale: {
    title: 'What history costs',
    text: "The relay's own claims in outboxes that differ only in what lies beside the backlog; draining while a session holds an old snapshot; memory. The history was made with generate_series and has small payloads.",
  },
  dashboard: {
    title: 'What history costs the dashboard',
    text: 'Requests of the dashboard to outboxes that differ only in how many delivered events they hold, one here, one there. The baseline has a thousand, so that both answer with full pages.',
  },
  brokers: {
    title: 'Into brokers',
    text: 'What the relay leaves of the speed of a broker’s client: the same client alone publishes the same bytes from memory, with the same promise.',
  },
  webhooks: {
    title: 'Customers whose webhooks hang',
    text: 'One relay with default options sends webhooks to 1,000 customers. In one scene all of them answer, in the other ten never do and ten take three seconds; the events are the same. Time from the answer to COMMIT to the arrival, of the other customers’ events.',
  },
  peers: {
    title: 'Every peer, every mode',
    text: 'The same drain for all, with one and two processes, and what it costs: WAL, processor time (contender and server together) and dead rows for each event. Peers that are slow get a smaller backlog. Then one, two and four processes of Postcommit and of graphile-worker on one backlog, PostgreSQL on the same machine.',
  },
};

/** Settings of the machine: told once. */
const machineKeys = ['cpus', 'cpu', 'memoryGb', 'os'];

/** The page of all figures. A pure function of what `npm run bench -- --json` printed. */
export function benchmarksPage(measurements: readonly Measurement[]): string {
  const names = [...Object.keys(suites), ...measurements.map(({ suite }) => suite)];
  const drawn = new Map(charts(measurements).map((chart) => [chart.suite, chart]));
  const sections = [...new Set(names)].flatMap((suite) => {
    const own = measurements.filter((measurement) => measurement.suite === suite);
    return own.length > 0 ? [section(suite, own, drawn.get(suite))] : [];
  });
  return `${[
    '# Benchmarks',
    '<!-- Generated from bench/results.jsonl by `npm run bench:docs`. Do not edit. -->',
    'After reading this you can compare Postcommit with other queues, and repeat every measurement.',
    'Compare ratios. Each round ran every contender once, on one machine, and a ratio is the median of the rounds’ own ratios, so that a slow minute of the machine does not count as a difference. “Ratio of medians” is one contender’s median over all rounds by the other’s, given for comparison. A figure is the median of its rounds. Absolute figures hold for that machine only.',
    measurements.length > 0 ? environment(measurements) : 'Nothing has been measured yet.',
    '## Reproduce',
    '```sh\nnpm run --silent bench -- --json > results.jsonl    # every suite, or name some: -- emit latency --json\nnpm run bench:docs -- results.jsonl                 # writes this page\n```',
    'The rules, how the peers were tuned, and every option: [bench/README.md](../bench/README.md). All settings of each figure are in `bench/results.jsonl`.',
    ...sections,
  ].join('\n\n')}\n`;
}

function environment(measurements: readonly Measurement[]): string {
  const machines = new Set(
    measurements.map(({ settings: { cpus, cpu, memoryGb, os } }) => `${cpus} cores of ${cpu}, ${memoryGb} GB, ${os}`),
  );
  const versions = new Map<string, Set<string>>();
  for (const measurement of measurements) {
    for (const [name, version] of Object.entries(measurement.versions)) {
      versions.set(name, (versions.get(name) ?? new Set()).add(version));
    }
  }
  const list = [...versions]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, found]) => `${name} ${[...found].join(', ')}`);
  return `Machine: ${[...machines].join('; ')}.\n\nVersions: ${list.join(' · ')}.`;
}

function section(suite: string, measurements: readonly Measurement[], chart: Chart | undefined): string {
  const { title, text } = suites[suite] ?? { title: suite, text: '' };
  const comparisons = measurements.filter(({ baseline, goal }) => baseline !== undefined || goal !== undefined);
  const figures = measurements.filter(({ baseline }) => baseline === undefined);
  const common = commonSettings(figures);
  const settings = Object.entries(common).map(([name, value]) => `${words(name)} ${shown(value)}`);
  return [
    `## ${title}`,
    ...(text ? [text] : []),
    ...(chart ? [`![${chart.title}](images/${chart.file})`] : []),
    ...(settings.length > 0 ? [`Settings: ${settings.join(', ')}.`] : []),
    ...(comparisons.length > 0 ? [comparisonTable(comparisons)] : []),
    ...(figures.length > 0 ? [figureTable(figures, common)] : []),
  ].join('\n\n');
}

function comparisonTable(comparisons: readonly Measurement[]): string {
  const rows = comparisons.map((measurement) => [
    measurement.name,
    `${shown(measurement.value)} ${measurement.unit}`,
    measurement.baseline === undefined ? '' : spreadText(measurement),
    // A comparison that was recorded without its rounds is a ratio of medians itself.
    measurement.baseline === undefined ? '' : `${shown(measurement.ratioOfMedians ?? measurement.value)} x`,
    measurement.goal === undefined ? '' : goalText(measurement),
    measurement.pass === undefined ? '' : measurement.pass ? 'met' : '**missed**',
    measurement.next === undefined ? '' : `${shown(measurement.next)}: ${measurement.nextPass ? 'met' : 'not yet'}`,
  ]);
  const headings = [
    'comparison',
    'measured',
    'rounds: min / median / max',
    'ratio of medians',
    'goal',
    '',
    'next goal',
  ];
  return usedColumns(headings, rows, 2);
}

function figureTable(figures: readonly Measurement[], common: Record<string, unknown>): string {
  const details = [...new Set(figures.flatMap((figure) => Object.keys(figure.details ?? {})))];
  const rows = figures.map((figure) => [
    figure.name,
    `${shown(figure.value)} ${figure.unit}`,
    spreadText(figure),
    ...details.map((name) => shown(figure.details?.[name] ?? '')),
    Object.entries(figure.settings)
      .filter(([name]) => !machineKeys.includes(name) && !(name in common))
      .map(([name, value]) => `${words(name)} ${shown(value)}`)
      .join(', '),
  ]);
  return usedColumns(['', 'median', 'rounds', ...details.map(words), 'settings'], rows, 2);
}

/** A table without its empty columns, except the first ones. */
function usedColumns(headings: readonly string[], rows: readonly (readonly string[])[], always: number): string {
  const used = headings.map((_, column) => column < always || rows.some((row) => row[column] !== ''));
  const keep = (row: readonly string[]) => row.filter((_, column) => used[column]);
  return table(keep(headings), rows.map(keep));
}

/** What all figures of a suite were measured with. */
function commonSettings(figures: readonly Measurement[]): Record<string, unknown> {
  const [first, ...others] = figures;
  return Object.fromEntries(
    Object.entries(first?.settings ?? {}).filter(
      ([name, value]) => !machineKeys.includes(name) && others.every(({ settings }) => settings[name] === value),
    ),
  );
}

/** `walBytesPerEvent` as people write it. */
function words(name: string): string {
  return name
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .replace(/ (ms|mb|gb)$/, ', $1')
    .replace(/\bcpu micros\b/, 'CPU µs')
    .replace(/ percent$/, ', %')
    .replace(/\bwal\b/, 'WAL')
    .replace(/(, )(mb|gb)$/, (_, comma: string, unit: string) => comma + unit.toUpperCase());
}

const shown = (value: unknown): string => (typeof value === 'number' ? value.toLocaleString('en') : String(value));

function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(headings), line(headings.map(() => '---')), ...rows.map(line)].join('\n');
}
