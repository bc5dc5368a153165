// npm run takeover -- [options]. Kills relays with default options and measures when their events are delivered. Progress goes
// to stderr, the result to stdout.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { fromPg } from '../../src/adapters/pg.ts';
import { migrate } from '../../src/database/migrate.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox } from '../../src/index.ts';
import { monotonicMs } from '../clock.ts';
import type { RelayNote, RelayTask, TakeoverPayload } from './relay.ts';

const usage = `Usage: npm run takeover -- [options]

  --kills <n>        how many relays are killed in each series (default 50)
  --only <series>    another: beside a relay that counts as one on another host; restart: alone, and started again at once
  --json             the result as JSON
  --help             print this

Exit code: 0 p95 is at most 3 s, nothing was lost and order was kept; 1 not so; 2 wrong usage.`;

const p95MsMax = 3_000;
const keys = 10;
const eventsPerKey = 3;
const waitMsMax = 60_000;

type Series = 'another' | 'restart';

interface SeriesResult {
  series: Series;
  kills: number;
  /** From the signal until every event that the relay had was handled. */
  p50Ms: number;
  p95Ms: number;
  maxMs: number;
  emitted: number;
  lost: number;
  outOfOrder: number;
}

/** A relay's process, and what it told. */
class RelayProcess {
  readonly process: ChildProcess;
  readonly begun: TakeoverPayload[] = [];
  readonly started: Promise<void>;

  constructor(task: RelayTask, onHandled: (event: TakeoverPayload) => void) {
    this.process = fork(fileURLToPath(new URL('relay.ts', import.meta.url)), [JSON.stringify(task)]);
    let isStarted = () => {};
    this.started = new Promise((resolve) => {
      isStarted = resolve;
    });
    this.process.on('message', (message) => {
      const note = message as RelayNote;
      if (note.note === 'started') isStarted();
      else if (note.note === 'begun') this.begun.push(note.event);
      else onHandled(note.event);
    });
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = once(this.process, 'exit');
    this.process.kill(signal);
    await exited;
  }
}

async function until(isDone: () => boolean, what: string): Promise<void> {
  const deadline = monotonicMs() + waitMsMax;
  while (!isDone()) {
    if (monotonicMs() > deadline) throw new Error(`waited ${waitMsMax} ms in vain until ${what}`);
    await sleep(2);
  }
}

async function measure(series: Series, kills: number, connectionString: string): Promise<SeriesResult> {
  const pool = new pg.Pool({ connectionString });
  const outbox = createOutbox({ db: fromPg(pool) });
  /** By key: the numbers in the order in which they were first handled. */
  const handled = new Map<string, number[]>();
  const onHandled = ({ key, n }: TakeoverPayload) => {
    const seen = handled.get(key) ?? [];
    if (!seen.includes(n)) handled.set(key, [...seen, n]);
  };
  const start = (name: string, hangs: boolean) => new RelayProcess({ connectionString, name, hangs }, onHandled);
  const durations: number[] = [];
  const processes: RelayProcess[] = [];
  let emitted = 0;
  try {
    let survivor: RelayProcess | undefined;
    for (let round = 0; round < kills; round++) {
      const victim = start(`victim ${round}`, true);
      processes.push(victim);
      await victim.started;
      const names = Array.from({ length: keys }, (_, k) => `${round}/${k}`);
      const events = names.flatMap((key) =>
        Array.from({ length: eventsPerKey }, (_, n) => ({
          type: 'takeover',
          aggregate: ['key', key] as const,
          payload: { key, n },
        })),
      );
      // The victim is alone until it has them all.
      await outbox.transaction((_tx, emit) => emit(events));
      emitted += events.length;
      await until(() => victim.begun.length === keys, 'the relay has begun one event of each key');
      if (series === 'another') {
        await pool.query(`update postcommit.outbox_relays set host_id = 'another' where ended_at is null`);
        survivor = start(`survivor ${round}`, false);
        processes.push(survivor);
        await survivor.started;
      }
      victim.process.kill('SIGKILL');
      const killedAt = monotonicMs();
      if (series === 'restart') {
        survivor = start(`restarted ${round}`, false);
        processes.push(survivor);
      }
      await until(() => names.every((key) => handled.get(key)?.length === eventsPerKey), 'all events are handled');
      durations.push(monotonicMs() - killedAt);
      process.stderr.write(`${series} ${round + 1}/${kills}: ${Math.round(durations.at(-1) ?? 0)} ms\n`);
      await survivor?.end('SIGTERM');
    }
  } finally {
    for (const each of processes) await each.end('SIGKILL');
    await pool.end();
  }
  durations.sort((a, b) => a - b);
  const at = (share: number) =>
    Math.round(durations[Math.min(durations.length - 1, Math.ceil(durations.length * share) - 1)] ?? 0);
  const inOrder = [...handled.values()].filter((numbers) => numbers.every((n, index) => n === index)).length;
  return {
    series,
    kills,
    p50Ms: at(0.5),
    p95Ms: at(0.95),
    maxMs: at(1),
    emitted,
    lost: emitted - [...handled.values()].reduce((sum, numbers) => sum + numbers.length, 0),
    outOfOrder: handled.size - inOrder,
  };
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      kills: { type: 'string', default: '50' },
      only: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const kills = Number(values.kills);
  const all: Series[] = ['another', 'restart'];
  const chosen = all.filter((series) => values.only === undefined || values.only === series);
  if (values.help || !Number.isInteger(kills) || kills < 1 || kills > 1_000 || chosen.length === 0) {
    console.log(usage);
    return values.help ? 0 : 2;
  }
  const server = await startEmbeddedPostgres();
  try {
    await migrate({ connectionString: server.connectionString });
    // No relay is declared lost for its lock while the server has just started.
    await sleep(11_000);
    let isGood = true;
    for (const series of chosen) {
      const result = await measure(series, kills, server.connectionString);
      isGood &&= result.p95Ms <= p95MsMax && result.lost === 0 && result.outOfOrder === 0;
      if (values.json) console.log(JSON.stringify(result));
      else console.table([result]);
    }
    return isGood ? 0 : 1;
  } finally {
    await server.stop();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error);
  process.exitCode = 1;
}
