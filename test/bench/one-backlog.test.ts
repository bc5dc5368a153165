import { describe, expect, it } from 'vitest';
import type { Contender } from '../../bench/contenders/contender.ts';
import { graphileWorkerLocalQueue } from '../../bench/contenders/graphile-worker.ts';
import { postcommit } from '../../bench/contenders/postcommit.ts';
import type { Drained } from '../../bench/drain-once.ts';
import type { EntrantResult } from '../../bench/drain-rounds.ts';
import { oneBacklogReport } from '../../bench/one-backlog.ts';
import type { Measurement } from '../../bench/report.ts';
import type { Server } from '../../bench/server.ts';

// The peers need not be installed for this.
const graphileWorker: Contender = { ...graphileWorkerLocalQueue, packageJson: postcommit.packageJson };

interface Round {
  eventsPerSecond: number;
  cpuMicros?: number;
  callsByProcess?: number[];
}

const drained = ({ eventsPerSecond, cpuMicros = 30, callsByProcess = [1_000] }: Round): Drained => ({
  events: 1_000,
  node: 'v22',
  startupMs: 1,
  drainMs: 1,
  eventsPerSecond,
  clientCpuMs: cpuMicros / 3,
  drainServerCpuMs: (cpuMicros / 3) * 2,
  serverCpuMs: 1_000,
  secondHalf: { events: 500, ms: 10, clientCpuMs: 4, serverCpuMs: 6 },
  callsByProcess,
  claims: { claims: 0, empty: 0, claimed: 0, examined: 0, waitedMs: 0 },
  residentBytesMax: 1,
  walBytes: 1,
  deadTuples: 1,
  rowsFetched: 1,
});

const entrant = (contender: Contender, processes: number, rounds: Round[]): EntrantResult => ({
  contender,
  processes,
  server: { version: '18.4' } as Server,
  rounds: rounds.map(drained),
});

const options = {
  events: 1_000,
  rounds: 3,
  payloadBytes: 1_024,
  aggregates: 10,
  only: [],
  overrides: {},
  seed: 1,
  databaseUrl: undefined,
  interrupted: new AbortController().signal,
};

function report(results: EntrantResult[]): (name: string) => Measurement | undefined {
  const measurements = oneBacklogReport(results, options);
  return (name) => measurements.find((measurement) => measurement.name === name);
}

const one = 'postcommit, 1 process on one backlog';
const two = 'postcommit, 2 processes on one backlog';
const four = 'postcommit, 4 processes on one backlog';

describe('several processes on one backlog', () => {
  it('are compared with one process round by round, in events per second and processor time', () => {
    const find = report([
      entrant(postcommit, 1, [{ eventsPerSecond: 100 }, { eventsPerSecond: 50 }, { eventsPerSecond: 100 }]),
      entrant(postcommit, 2, [{ eventsPerSecond: 90 }, { eventsPerSecond: 51 }, { eventsPerSecond: 102 }]),
      entrant(postcommit, 4, [
        { eventsPerSecond: 96, cpuMicros: 37.4 },
        { eventsPerSecond: 47.6, cpuMicros: 37.6 },
        { eventsPerSecond: 94, cpuMicros: 37.6 },
      ]),
    ]);
    expect(find(`${two} against ${one}`)).toMatchObject({ ratio: 1.02, ratioOfMedians: 0.9, goal: 1, pass: true });
    expect(find(`${four} against ${one}`)).toMatchObject({ goal: 0.95, pass: true });
    expect(find(`${four} against ${one}`)?.ratio).toBeCloseTo(0.952);
    expect(find(`CPU of ${two} against CPU of ${one}`)).toMatchObject({
      ratio: 1,
      goal: 1.15,
      goalIs: 'atMost',
      pass: true,
    });
    const cpuOfFour = find(`CPU of ${four} against CPU of ${one}`);
    expect(cpuOfFour).toMatchObject({ goal: 1.25, goalIs: 'atMost', pass: false });
    expect(cpuOfFour?.ratio).toBeCloseTo(37.6 / 30);
  });

  it('are compared with as many processes of graphile-worker', () => {
    const find = report([
      entrant(postcommit, 1, [{ eventsPerSecond: 100 }]),
      entrant(postcommit, 2, [{ eventsPerSecond: 100 }]),
      entrant(graphileWorker, 1, [{ eventsPerSecond: 200 }]),
      entrant(graphileWorker, 2, [{ eventsPerSecond: 101 }]),
    ]);
    const theirs = 'graphile-worker-local-queue, 2 processes on one backlog';
    expect(find(`${two} against ${theirs}`)).toMatchObject({ goal: 1, goalIs: 'atLeast', pass: false });
    // One process has its goal elsewhere, and graphile-worker with two has none.
    const theirOne = 'graphile-worker-local-queue, 1 process on one backlog';
    expect(find(`${one} against ${theirOne}`)).not.toHaveProperty('goal');
    expect(find(`${theirs} against ${theirOne}`)).toMatchObject({ ratio: 0.505 });
    expect(find(`${theirs} against ${theirOne}`)).not.toHaveProperty('goal');
  });

  it('report processor time per event and how many events each process delivered', () => {
    const find = report([
      entrant(postcommit, 2, [
        { eventsPerSecond: 100, callsByProcess: [600, 400] },
        { eventsPerSecond: 100, callsByProcess: [480, 520] },
        { eventsPerSecond: 100, callsByProcess: [540, 460] },
      ]),
    ]);
    const figure = find(two);
    expect(figure?.eventsByProcess).toEqual([
      [600, 400],
      [480, 520],
      [540, 460],
    ]);
    expect(figure?.details).toMatchObject({
      cpuMicrosPerEvent: 30,
      clientCpuMicrosPerEvent: 10,
      serverCpuMicrosPerEvent: 20,
      secondHalfCpuMicrosPerEvent: 20,
      largestSharePercent: 54,
      smallestSharePercent: 46,
    });
  });
});
