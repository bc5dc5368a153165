// npx tsx bench/relays.ts --relays 1,2,4 --events 100000 --rounds 3: what several relays on one backlog cost. For
// development: Postcommit only, under the Node at hand. The suite `peers` measures the same drains against graphile-worker.
import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import type pg from 'pg';
import { postcommit } from './contenders/postcommit.ts';
import * as figures from './drain-figures.ts';
import type { Drained } from './drain-once.ts';
import { drainInTurns, type EntrantResult } from './drain-rounds.ts';
import { warnIfBusy } from './machine.ts';
import { build } from './peers.ts';
import { median, ratioWithinRounds } from './ratio.ts';
import { startServer } from './server.ts';
import type { BenchOptions } from './suites/suite.ts';

const usage = `Usage: npx tsx bench/relays.ts [options]

  --relays <n,n,...>       numbers of relay processes, the first one is the baseline (default 1,2,4)
  --events <n>             events in the backlog (default 100000)
  --rounds <n>             rounds; each drains one backlog with every number of relays (default 3)
  --aggregates <n>         aggregates the events are spread over (default 1000)
  --payload-bytes <n>      size of a payload (default 1024)
  --set <option=number>    an option of the relay, e.g. batchSizeMax=500; may be repeated
  --seed <n>               order of the drains within each round (default: random, printed)
  --functions              also print calls and time of the SQL functions (track_functions = all)
  --no-build               measure dist as it is
  --unwatched              do not count claims, which costs the relays some microseconds for each
  --json                   one line of JSON per number of relays instead of the table
  --database-url <url>     a PostgreSQL to measure on instead of an embedded one`;

const { values } = parseArgs({
  options: {
    relays: { type: 'string', default: '1,2,4' },
    events: { type: 'string', default: '100000' },
    rounds: { type: 'string', default: '3' },
    aggregates: { type: 'string', default: '1000' },
    'payload-bytes': { type: 'string', default: '1024' },
    set: { type: 'string', multiple: true, default: [] },
    seed: { type: 'string' },
    functions: { type: 'boolean', default: false },
    'no-build': { type: 'boolean', default: false },
    unwatched: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
    'database-url': { type: 'string' },
  },
});

interface FunctionCost {
  name: string;
  calls: number;
  selfMs: number;
}

/** Called after the relays have ended, so that the server has counted all of their calls. */
async function functionCosts(db: pg.Client): Promise<FunctionCost[]> {
  const { rows } = await db.query(
    `select funcname as name, calls::int, self_time as "selfMs"
       from pg_stat_user_functions where schemaname = 'postcommit' order by self_time desc limit 8`,
  );
  return rows;
}

function figuresOf(drained: Drained): Record<string, number> {
  const { claims } = drained;
  return {
    'events/s': drained.eventsPerSecond,
    'CPU us/event': figures.cpuMicrosPerEvent(drained) ?? Number.NaN,
    '  relays': figures.clientCpuMicrosPerEvent(drained) ?? Number.NaN,
    '  PostgreSQL': figures.serverCpuMicrosPerEvent(drained) ?? Number.NaN,
    'events/s, 2nd half': figures.secondHalfEventsPerSecond(drained) ?? Number.NaN,
    'CPU us/event, 2nd half': figures.secondHalfCpuMicrosPerEvent(drained) ?? Number.NaN,
    claims: claims.claims,
    '  empty': claims.empty,
    'events/claim': claims.claimed / claims.claims,
    'examined/claimed': claims.examined / claims.claimed,
    'ms/claim': claims.waitedMs / claims.claims,
    'rows fetched/event': figures.rowsFetchedPerEvent(drained) ?? Number.NaN,
    'dead rows/event': figures.deadTuplesPerEvent(drained) ?? Number.NaN,
    'WAL bytes/event': figures.walBytesPerEvent(drained) ?? Number.NaN,
    'largest share %': figures.largestSharePercent(drained),
    'smallest share %': figures.smallestSharePercent(drained),
    'startup ms': drained.startupMs,
  };
}

function tableOf(results: readonly EntrantResult[]): string {
  const columns = results.map(({ rounds }) => rounds.map(figuresOf));
  const rows: string[][] = [['', ...results.map(({ processes }) => `${processes} relay${processes > 1 ? 's' : ''}`)]];
  for (const name of Object.keys(columns[0]?.[0] ?? {})) {
    rows.push([
      name,
      ...columns.map((rounds) => {
        const found = rounds.map((round) => round[name] as number);
        const [low, middle, high] = [Math.min(...found), median(found), Math.max(...found)].map(shown);
        return found.length > 1 ? `${middle} (${low} to ${high})` : `${middle}`;
      }),
    ]);
  }
  for (const name of ['events/s', 'CPU us/event', 'events/s, 2nd half', 'CPU us/event, 2nd half']) {
    const of = (rounds: Record<string, number>[] | undefined) => (rounds ?? []).map((round) => round[name] as number);
    rows.push([
      `${name} ratio`,
      ...columns.map((rounds) => {
        const { ratio, ratioOfMedians, rounds: each } = ratioWithinRounds(of(rounds), of(columns[0]));
        return `${ratio.toFixed(3)} (${each.map((value) => value.toFixed(2)).join(' ')}; of medians ${ratioOfMedians.toFixed(3)})`;
      }),
    ]);
  }
  const shares = results.map(({ processes, rounds }) => {
    const each = rounds.map(({ callsByProcess }) =>
      callsByProcess.map((calls) => calls.toLocaleString('en')).join(' + '),
    );
    return `  ${processes}: ${each.join(' | ')}`;
  });
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  const lines = rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  return [...lines, 'events of each relay, by round', ...shares].join('\n');
}

const shown = (value: number): string =>
  Number.isNaN(value) ? '-' : Number(value.toPrecision(4)).toLocaleString('en', { maximumFractionDigits: 2 });

async function main(interrupted: AbortSignal): Promise<void> {
  if (values.help) return console.log(usage);
  const seed = Number(values.seed ?? randomInt(2 ** 31));
  const settings = values.set.map((assignment) => assignment.split('=') as [string, string]);
  const options: BenchOptions = {
    events: Number(values.events),
    rounds: Number(values.rounds),
    payloadBytes: Number(values['payload-bytes']),
    aggregates: Number(values.aggregates),
    only: [],
    overrides: { postcommit: Object.fromEntries(settings.map(([name, value]) => [name, Number(value)])) },
    seed,
    databaseUrl: values['database-url'],
    interrupted,
  };
  warnIfBusy();
  if (!values['no-build']) build();
  const server = await startServer(options.databaseUrl, values.functions ? { track_functions: 'all' } : {});
  try {
    console.error(`Order of the rounds: --seed ${seed}`);
    const entrants = values.relays
      .split(',')
      .map(Number)
      .map((processes) => ({ contender: postcommit, processes, server }));
    const results = await drainInTurns(entrants, process.execPath, options, {
      watchClaims: !values.unwatched,
      ...(values.functions && {
        async inspect(db) {
          for (const { name, calls, selfMs } of await functionCosts(db)) {
            const perEvent = (selfMs / options.events) * 1_000;
            console.error(`    ${name}: ${calls} calls, ${selfMs.toFixed(0)} ms, ${perEvent.toFixed(2)} us/event`);
          }
        },
      }),
    });
    if (!values.json) return console.log(tableOf(results));
    for (const { processes, rounds } of results) console.log(JSON.stringify({ relays: processes, rounds }));
  } finally {
    await server.stop();
  }
}

const interruption = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interruption.abort());
await main(interruption.signal);
