// npm run bench -- [suite ...] [options]. Figures go to stdout, everything else to stderr.
import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { payloadBytesMin, type Settings } from './contenders/contender.ts';
import { goalText, jsonLine, type Measurement, printed, table } from './report.ts';
import { brokers } from './suites/brokers.ts';
import { dashboard } from './suites/dashboard.ts';
import { drain } from './suites/drain.ts';
import { emit } from './suites/emit.ts';
import { inbox } from './suites/inbox.ts';
import { latency } from './suites/latency.ts';
import { notifyTrigger } from './suites/notify-trigger.ts';
import { peers } from './suites/peers.ts';
import { queues } from './suites/queues.ts';
import { scale } from './suites/scale.ts';
import { type BenchOptions, type Suite, UsageError } from './suites/suite.ts';
import { webhooks } from './suites/webhooks.ts';

const suites: readonly Suite[] = [
  emit,
  inbox,
  notifyTrigger,
  drain,
  latency,
  queues,
  scale,
  dashboard,
  brokers,
  webhooks,
  peers,
];

const usage = `Usage: npm run bench -- [suite ...] [options]

Suites (all of them if none is named):
${suites.map(({ name, summary }) => `  ${name.padEnd(14)} ${summary}`).join('\n')}

Options:
  --json                      one line of JSON per figure (npm run --silent bench -- ... for nothing else on stdout)
  --events <n>                events in the backlog (default 50000; some brokers get more or fewer)
  --rounds <n>                rounds for each figure, of which the median counts (default 3)
  --payload-bytes <n>         size of a payload (default 1024)
  --aggregates <n>            aggregates the events are spread over (default 1000)
  --only <name>               only this contender, broker, …; may be repeated
  --set <name.key=number>     override a setting of a contender or a suite; may be repeated
  --seed <n>                  order of the contenders within each round (default: random, printed)
  --database-url <url>        a PostgreSQL to measure on instead of an embedded one; the role must be a superuser
                              that may create databases, and only databases of the benchmark's own are touched
  --help                      print this

Exit code: 0 measured and every goal met, 1 a goal missed or a measurement failed, 2 wrong usage.`;

interface CommandLine {
  chosen: Suite[];
  json: boolean;
  help: boolean;
  options: BenchOptions;
}

function readCommandLine(args: string[], interrupted: AbortSignal): CommandLine {
  const { values, positionals } = parse(args);
  const named = positionals.map((given) => {
    const found = suites.find(({ name }) => name === given);
    if (!found)
      throw new UsageError(`There is no suite "${given}"; there are: ${suites.map(({ name }) => name).join(', ')}.`);
    return found;
  });
  const chosen = named.length > 0 ? named : [...suites];
  const settings = overrides(values.set);
  checkNames(chosen, values.only, settings);
  return {
    // A suite of which nothing was chosen has nothing to say.
    chosen: chosen.filter(({ names }) => values.only.length === 0 || values.only.some((name) => names.includes(name))),
    json: values.json,
    help: values.help,
    options: {
      events: count('events', values.events, 1),
      rounds: count('rounds', values.rounds, 1),
      payloadBytes: count('payload-bytes', values['payload-bytes'], payloadBytesMin),
      aggregates: count('aggregates', values.aggregates, 1),
      only: values.only,
      overrides: settings,
      seed: values.seed === undefined ? randomInt(2 ** 31) : count('seed', values.seed, 0),
      databaseUrl: databaseUrl(values['database-url']),
      interrupted,
    },
  };
}

function parse(args: string[]) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
        events: { type: 'string', default: '50000' },
        rounds: { type: 'string', default: '3' },
        'payload-bytes': { type: 'string', default: '1024' },
        aggregates: { type: 'string', default: '1000' },
        only: { type: 'string', multiple: true, default: [] },
        set: { type: 'string', multiple: true, default: [] },
        seed: { type: 'string' },
        'database-url': { type: 'string' },
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** A name that no chosen suite knows would silently change nothing. */
function checkNames(chosen: readonly Suite[], only: readonly string[], set: Record<string, Settings>): void {
  const names = [...new Set(chosen.flatMap((suite) => suite.names))];
  const tunable = chosen.filter(({ settings }) => settings !== undefined);
  const refuse = (given: string, known: readonly string[]) =>
    new UsageError(
      `There is no "${given}" in ${chosen.map(({ name }) => name).join(', ')}; there are ${known.join(', ')}.`,
    );
  for (const name of only) if (!names.includes(name)) throw refuse(name, names);
  for (const [name, settings] of Object.entries(set)) {
    if (names.includes(name)) continue; // Contenders have settings of their own.
    const known = Object.keys(tunable.find((suite) => suite.name === name)?.settings ?? {});
    if (known.length === 0) throw refuse(name, [...names, ...tunable.map((suite) => suite.name)]);
    const unknown = Object.keys(settings).find((key) => !known.includes(key));
    if (unknown !== undefined) throw refuse(`${name}.${unknown}`, known);
  }
}

function databaseUrl(given: string | undefined): string | undefined {
  // An unset variable on the command line, and not a wish for the embedded server.
  if (given === '') throw new UsageError('--database-url is empty.');
  return given;
}

function count(option: string, given: string, min: number): number {
  const value = Number(given.replaceAll('_', ''));
  if (!Number.isSafeInteger(value) || value < min) {
    throw new UsageError(`--${option} takes a whole number from ${min} on, not "${given}".`);
  }
  return value;
}

function overrides(given: string[]): Record<string, Settings> {
  const byContender: Record<string, Settings> = {};
  for (const assignment of given) {
    const match = /^(?<name>[^.=]+)\.(?<key>[^.=]+)=(?<value>-?\d+)$/.exec(assignment);
    const { name, key, value } = match?.groups ?? {};
    if (!name || !key) throw new UsageError(`--set takes name.key=number, not "${assignment}".`);
    byContender[name] = { ...byContender[name], [key]: Number(value) };
  }
  return byContender;
}

async function main(interrupted: AbortSignal): Promise<number> {
  const { chosen, json, help, options } = readCommandLine(process.argv.slice(2), interrupted);
  if (help) {
    console.log(usage);
    return 0;
  }
  console.error(`Order of the rounds: --seed ${options.seed}`);
  const missed: Measurement[] = [];
  for (const suite of chosen) {
    const measurements = (await suite.run(options)).map(printed);
    console.log(json ? measurements.map(jsonLine).join('\n') : `\n${suite.name}\n${table(measurements)}\n`);
    missed.push(...measurements.filter(({ pass }) => pass === false));
  }
  for (const measurement of missed) {
    const { suite, name, value, unit } = measurement;
    console.error(`Goal missed: ${suite}, ${name}: ${value} ${unit}, and the goal is ${goalText(measurement)}.`);
  }
  return missed.length > 0 ? 1 : 0;
}

// The first Ctrl-C ends the child and lets the suite drop its database; a second one ends this process.
const interruption = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interruption.abort());

try {
  process.exitCode = await main(interruption.signal);
} catch (error) {
  if (interruption.signal.aborted) {
    console.error('Interrupted.');
    process.exitCode = 130;
  } else if (error instanceof UsageError) {
    console.error(`${error.message}\n\n${usage}`);
    process.exitCode = 2;
  } else {
    console.error(error);
    process.exitCode = 1;
  }
}
