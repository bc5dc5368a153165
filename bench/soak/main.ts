// npm run soak -- [options]. A relay with a small heap works for minutes on payloads of all sizes. Progress goes to
// stderr, the result to stdout.
import { type ChildProcess, fork } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { fromPg } from '../../src/adapters/pg.ts';
import { migrate } from '../../src/database/migrate.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox } from '../../src/index.ts';
import { Arrivals } from './arrivals.ts';
import { EventSource, goesToWebhook, payloadBytesMax, type SoakPayload } from './events.ts';
import { type MemoryReport, type MemorySample, reportMemory } from './memory.ts';
import type { RelayNote, RelayTask } from './relay.ts';

const usage = `Usage: npm run soak -- [options]

  --minutes <n>      how long events are emitted (default 10)
  --rate <n>         events a second; they have 460 KB on average (default 8)
  --heap-mb <n>      --max-old-space-size of the relay's process (default 256)
  --seed <n>         of the payloads and their order (default: any; it is printed)
  --json             the result as JSON
  --help             print this

Exit code: 0 everything arrived in order, nothing is left and memory was bounded; 1 not so; 2 wrong usage.`;

/** Emitting pauses while so many events are queued: what is measured is the relay, not the disk. */
const backlogMax = 200;
const drainTimeoutMs = 120_000;

interface SoakOptions {
  minutes: number;
  rate: number;
  heapMb: number;
  seed: number;
  json: boolean;
}

interface SoakResult {
  seed: number;
  minutes: number;
  heapMb: number;
  emitted: number;
  emittedBytes: number;
  handled: number;
  handledTwice: number;
  webhooks: number;
  webhooksTwice: number;
  left: { queued: number; shelved: number; dead: number };
  memory: MemoryReport;
  failures: string[];
}

function readOptions(): SoakOptions | undefined {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '10' },
      rate: { type: 'string', default: '8' },
      'heap-mb': { type: 'string', default: '256' },
      seed: { type: 'string', default: String(randomInt(2 ** 32)) },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const number = (name: 'minutes' | 'rate' | 'heap-mb' | 'seed', min: number, max: number): number => {
    const value = Number(values[name]);
    if (!(value >= min && value <= max)) throw new Error(`--${name} must be from ${min} to ${max}.`);
    return value;
  };
  if (values.help) return undefined;
  return {
    minutes: number('minutes', 0.1, 600),
    rate: number('rate', 0.1, 1_000),
    heapMb: number('heap-mb', 64, 65_536),
    seed: number('seed', 0, 2 ** 32 - 1),
    json: values.json,
  };
}

/** Takes webhooks and answers 200 once the body is read and noted. */
async function startReceiver(arrivals: Arrivals): Promise<{ server: Server; url: string }> {
  const server = createServer(async (request, response) => {
    try {
      const { aggregate, data } = (await json(request)) as { aggregate: { id: string }; data: SoakPayload };
      arrivals.note(aggregate.id, data.n, data.pad.length === data.padLength);
      response.end();
    } catch {
      response.statusCode = 500;
      response.end();
    }
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}

interface RelayProcess {
  child: ChildProcess;
  samples: MemorySample[];
  started: Promise<void>;
  exited: Promise<string>;
}

function startRelay(task: RelayTask, heapMb: number, handled: Arrivals): RelayProcess {
  const child = fork(fileURLToPath(new URL('./relay.ts', import.meta.url)), [JSON.stringify(task)], {
    execArgv: [`--max-old-space-size=${heapMb}`, '--expose-gc', '--import', 'tsx'],
    stdio: ['ignore', process.stderr, process.stderr, 'ipc'],
  });
  process.once('exit', () => child.kill('SIGKILL'));
  const samples: MemorySample[] = [];
  const exited = new Promise<string>((resolve) => {
    child.once('exit', (code, signal) => resolve(`the relay's process ended: ${signal ?? `code ${code}`}`));
  });
  const started = new Promise<void>((resolve, reject) => {
    child.on('message', (note: RelayNote) => {
      if (note.note === 'started') resolve();
      else if (note.note === 'handled') handled.note(note.aggregateId, note.n, note.isIntact);
      else if (note.note === 'memory') samples.push(note.sample);
    });
    void exited.then((reason) => reject(new Error(reason)));
  });
  return { child, samples, started, exited };
}

async function left(pool: pg.Pool): Promise<SoakResult['left']> {
  const { rows } = await pool.query(
    `select (select count(*) from postcommit.outbox_queue)::integer as queued,
            (select count(*) from postcommit.outbox_shelf)::integer as shelved,
            (select count(*) from postcommit.outbox_dead_letters)::integer as dead`,
  );
  return rows[0];
}

async function emit(pool: pg.Pool, source: EventSource, options: SoakOptions, isOver: () => boolean): Promise<number> {
  const outbox = createOutbox({ db: fromPg(pool), payloadBytesMax: 2 * payloadBytesMax });
  const startedAt = performance.now();
  const endsAt = startedAt + options.minutes * 60_000;
  let bytes = 0;
  for (let next = startedAt, count = 1; next < endsAt && !isOver(); count++) {
    const { aggregateId, payload } = source.next();
    bytes += payload.pad.length;
    await outbox.transaction((_tx, write) => write({ type: 'soak', aggregate: ['thing', aggregateId], payload }));
    while (count % 20 === 0 && !isOver() && (await left(pool)).queued > backlogMax) await sleep(100);
    // A late event is not made up for: the rate is a limit.
    next = Math.max(next + 1_000 / options.rate, performance.now());
    await sleep(next - performance.now());
    if (count % 200 === 0) console.error(`${Math.round((performance.now() - startedAt) / 1_000)} s: ${count} events`);
  }
  return bytes;
}

async function soak(options: SoakOptions): Promise<SoakResult> {
  const server = await startEmbeddedPostgres();
  const handled = new Arrivals();
  const webhooks = new Arrivals();
  const receiver = await startReceiver(webhooks);
  const pool = new pg.Pool({ connectionString: server.connectionString, max: 4 });
  pool.on('error', () => {}); // end() does not wait for idle connections, which the server then breaks.
  let relay: RelayProcess | undefined;
  try {
    await migrate({ connectionString: server.connectionString });
    const source = new EventSource(options.seed);
    relay = startRelay(
      { connectionString: server.connectionString, webhookUrl: receiver.url },
      options.heapMb,
      handled,
    );
    let ended: string | undefined;
    void relay.exited.then((reason) => {
      ended = reason;
    });
    await relay.started;
    const emittedBytes = await emit(pool, source, options, () => ended !== undefined);
    const samples = [...relay.samples];
    const deadline = performance.now() + drainTimeoutMs;
    let rest = await left(pool);
    while (rest.queued + rest.shelved > 0 && performance.now() < deadline && ended === undefined) {
      await sleep(100);
      rest = await left(pool);
    }
    const failures = ended === undefined ? [] : [ended];
    if (ended === undefined) relay.child.send('stop');
    await relay.exited;
    rest = await left(pool);
    const { emitted } = source;
    handled.compare(emitted);
    webhooks.compare(new Map([...emitted].filter(([aggregateId]) => goesToWebhook(aggregateId))));
    const memory = reportMemory(samples);
    if (rest.queued + rest.shelved + rest.dead > 0) failures.push(`left over: ${JSON.stringify(rest)}`);
    if (!memory.isBounded) failures.push(`the heap grew from ${mb(memory.firstThird)} to ${mb(memory.lastThird)}`);
    failures.push(...handled.violations.map((text) => `handler: ${text}`));
    failures.push(...webhooks.violations.map((text) => `webhook: ${text}`));
    return {
      seed: options.seed,
      minutes: options.minutes,
      heapMb: options.heapMb,
      emitted: [...emitted.values()].reduce((sum, n) => sum + n, 0),
      emittedBytes,
      handled: handled.count,
      handledTwice: handled.duplicates,
      webhooks: webhooks.count,
      webhooksTwice: webhooks.duplicates,
      left: rest,
      memory,
      failures,
    };
  } finally {
    relay?.child.kill('SIGKILL');
    receiver.server.close();
    receiver.server.closeAllConnections();
    await pool.end();
    await server.stop();
  }
}

const mb = (bytes: number): string => `${(bytes / 1_048_576).toFixed(0)} MB`;

function print(result: SoakResult): void {
  const { memory } = result;
  console.log(`seed ${result.seed}, heap limit ${result.heapMb} MB`);
  console.log(`emitted ${result.emitted} events, ${mb(result.emittedBytes)}`);
  console.log(
    `handled ${result.handled} (${result.handledTwice} twice), webhooks ${result.webhooks} (${result.webhooksTwice} twice)`,
  );
  console.log('minute   heapUsed min / median / max      RSS min / median / max');
  for (const { minute, heapUsed, rss } of memory.minutes) {
    const three = ({ min, median, max }: typeof rss) => `${mb(min)} / ${mb(median)} / ${mb(max)}`.padEnd(32);
    console.log(`${String(minute + 1).padStart(6)}   ${three(heapUsed)} ${three(rss)}`.trimEnd());
  }
  console.log(`heap after GC, median: first third ${mb(memory.firstThird)}, last third ${mb(memory.lastThird)}`);
  for (const failure of result.failures) console.log(`FAILED: ${failure}`);
  if (result.failures.length === 0) console.log('ok: everything arrived in order, nothing is left, memory is bounded');
}

let options: SoakOptions | undefined;
try {
  options = readOptions();
} catch (error) {
  console.error(`${(error as Error).message}\n\n${usage}`);
  process.exit(2);
}
if (options === undefined) {
  console.log(usage);
} else {
  console.error(`seed: ${options.seed} (--seed ${options.seed} repeats it)`);
  const result = await soak(options);
  if (options.json) console.log(JSON.stringify(result));
  else print(result);
  process.exitCode = result.failures.length === 0 ? 0 : 1;
}
