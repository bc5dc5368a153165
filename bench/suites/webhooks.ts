import { setTimeout as sleep } from 'node:timers/promises';
import { postcommit } from '../contenders/postcommit.ts';
import { fill } from '../drain-processes.ts';
import { machine } from '../machine.ts';
import { packageAt } from '../peers.ts';
import { median } from '../ratio.ts';
import { makeReady } from '../ready.ts';
import { compare, type Measurement, percentile } from '../report.ts';
import { forkChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import { seededRandom, shuffled } from '../shuffled.ts';
import type { EmitterReport, EmitterTask } from '../webhooks/emitter.ts';
import type { ReceiverReport, ReceiverTask } from '../webhooks/receiver.ts';
import type { RelayReport, RelayTask } from '../webhooks/relay.ts';
import type { BenchOptions, Suite } from './suite.ts';

const defaults = {
  customers: 1_000,
  hanging: 10,
  slow: 10,
  slowMs: 3_000,
  backlog: 50,
  perSecond: 200,
  seconds: 15,
  warmUp: 1_000,
};
/** How long the last events may take to arrive. */
const lastArrivalMs = 5_000;

const scenes = ['all customers answer', 'some hang and some are slow'] as const;
type Scene = (typeof scenes)[number];

interface Round {
  /** From the answer to COMMIT to the arrival, of customers that answer at once. */
  latenciesMs: number[];
  relay: RelayReport;
}

/**
 * What customers whose endpoints hang or are slow cost the others. Each round runs both scenes, in random order, with new
 * processes and a new database: the same events at the same rate, and the same backlog for the same customers, which in
 * one scene answer at once and in the other do not. Only the events of all other customers are measured.
 */
export const webhooks: Suite = {
  name: 'webhooks',
  summary: 'webhooks to 1,000 customers, of which 10 hang and 10 are slow: what it costs the others',
  names: scenes,
  settings: defaults,

  async run(options) {
    const node = makeReady();
    const server = await startServer(options.databaseUrl);
    const results: Record<Scene, Round[]> = { [scenes[0]]: [], [scenes[1]]: [] };
    const random = seededRandom(options.seed);
    try {
      for (let round = 1; round <= options.rounds; round++) {
        for (const scene of shuffled(scenes, random)) {
          const measured = await play(scene, server, node, options, options.seed + round);
          results[scene].push(measured);
          const [p50, p99] = [0.5, 0.99].map((share) => percentile(measured.latenciesMs, share).toFixed(1));
          console.error(`round ${round} of ${options.rounds}: ${scene}: p50 ${p50} ms, p99 ${p99} ms`);
        }
      }
      return report(results, server, options);
    } finally {
      await server.stop();
    }
  },
};

async function play(scene: Scene, server: Server, node: string, options: BenchOptions, seed: number): Promise<Round> {
  const settings = settingsOf(options);
  const { customers, hanging, slow, slowMs, backlog, perSecond, seconds, warmUp } = settings;
  const { payloadBytes } = options;
  const database = `postcommit_bench_${process.pid}`;
  const connectionString = await server.createDatabase(database);
  const failed = new AbortController();
  const interrupted = AbortSignal.any([options.interrupted, failed.signal]);
  const timeoutMs = 60_000 + seconds * 1_000 + warmUp * 20;
  try {
    await fill(
      node,
      postcommit,
      { connectionString, backlog: { events: 0, payloadBytes, aggregates: 1 }, settings: {} },
      interrupted,
    );
    const isTroubled = scene === scenes[1];
    const start = (file: string, task: object) => started(node, file, task, timeoutMs, interrupted);
    const receiverTask: ReceiverTask = { hanging: isTroubled ? hanging : 0, slow: isTroubled ? slow : 0, slowMs };
    const receiver = await start('receiver.ts', receiverTask);
    const relayTask: RelayTask = { connectionString };
    const relay = await start('relay.ts', relayTask);
    const troubled = hanging + slow;
    const port = Number(receiver.note.port);
    const emitterTask: EmitterTask = {
      connectionString,
      port,
      customers,
      troubled,
      backlog,
      perSecond,
      seconds,
      warmUp,
      payloadBytes,
      seed,
    };
    const { events } = (await forkChild(node, fileOf('emitter.ts'), emitterTask, {
      what: 'webhooks emitter',
      timeoutMs,
      interrupted,
    })) as EmitterReport;
    await sleep(lastArrivalMs, undefined, { signal: interrupted });
    receiver.end();
    relay.end();
    const { arrivals } = (await receiver.report) as ReceiverReport;
    return { latenciesMs: latencies(events, arrivals, troubled), relay: (await relay.report) as RelayReport };
  } finally {
    failed.abort();
    await server.dropDatabase(database);
  }
}

const fileOf = (file: string) => new URL(`../webhooks/${file}`, import.meta.url);

/** A process that is ready for use, and ends when it is told to. */
async function started(node: string, file: string, task: object, timeoutMs: number, interrupted: AbortSignal) {
  let end = () => {};
  let report: Promise<unknown> | undefined;
  const note = await new Promise<Record<string, unknown>>((ready, reject) => {
    report = forkChild(node, fileOf(file), task, {
      what: `webhooks ${file}`,
      timeoutMs,
      interrupted,
      onNote: (given, answer) => {
        end = () => answer({ end: true });
        ready(given);
      },
    });
    report.catch(reject);
  });
  return { note, end: () => end(), report };
}

/** Every event of a customer that answers at once must have arrived, exactly once. */
function latencies(events: EmitterReport['events'], arrivals: ReceiverReport['arrivals'], troubled: number): number[] {
  const arrivedAtMs = new Map<number, number>();
  for (const [event, atMs] of arrivals) {
    const [customer = 0] = events[event] ?? [];
    if (customer < troubled) continue;
    if (arrivedAtMs.has(event)) throw new Error(`Event ${event} arrived twice.`);
    arrivedAtMs.set(event, atMs);
  }
  return events.flatMap(([customer, committedAtMs], event) => {
    if (customer < troubled) return [];
    const atMs = arrivedAtMs.get(event);
    if (atMs === undefined) throw new Error(`Event ${event} of a customer that answers has not arrived.`);
    return committedAtMs === null ? [] : atMs - committedAtMs;
  });
}

const settingsOf = (options: BenchOptions) => ({ ...defaults, ...options.overrides.webhooks });

function report(results: Record<Scene, Round[]>, server: Server, options: BenchOptions): Measurement[] {
  const figure = (scene: Scene, share: number): Measurement => {
    const rounds = results[scene].map(({ latenciesMs }) => percentile(latenciesMs, share));
    const of = (name: keyof RelayReport['stats']) => median(results[scene].map(({ relay }) => relay.stats[name]));
    return {
      suite: 'webhooks',
      name: `${scene}, p${share * 100} of the others`,
      value: median(rounds),
      unit: 'ms',
      rounds,
      details: { failed: of('failed'), released: of('released'), unavailable: of('unavailable') },
      versions: {
        node: results[scene][0]?.relay.node ?? '',
        postgres: server.version,
        postcommit: packageAt(new URL('../../package.json', import.meta.url)).version,
      },
      settings: { ...settingsOf(options), payloadBytes: options.payloadBytes, rounds: options.rounds, ...machine() },
    };
  };
  return [0.5, 0.99].flatMap((share) => {
    const [baseline, troubled] = [figure(scenes[0], share), figure(scenes[1], share)];
    return [baseline, troubled, compare(troubled, baseline, share === 0.99 ? { atMost: 1.5 } : undefined)];
  });
}
