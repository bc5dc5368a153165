import type { Contender } from './contenders/contender.ts';
import { graphileWorkerLocalQueue } from './contenders/graphile-worker.ts';
import { postcommit } from './contenders/postcommit.ts';
import * as figures from './drain-figures.ts';
import { costOf, type EntrantResult, rateOf } from './drain-rounds.ts';
import { compare, type Goal, type Measurement } from './report.ts';
import type { BenchOptions } from './suites/suite.ts';

/** Who drains one backlog with several processes, and with how many. */
export const oneBacklogContenders: readonly Contender[] = [postcommit, graphileWorkerLocalQueue];
export const oneBacklogProcesses: readonly number[] = [1, 2, 4];

interface ProcessGoals {
  /** Events per second against one process of the same contender. */
  rate: Goal;
  /** Processor time per event against one process. */
  cpu: Goal;
  /** Events per second against graphile-worker with as many processes. */
  peerRate: Goal;
}

/** With PostgreSQL on the same two cores, more processes have to cost little: there is no more to gain. */
const goalsByProcesses = new Map<number, ProcessGoals>([
  [2, { rate: { atLeast: 1 }, cpu: { atMost: 1.15 }, peerRate: { atLeast: 1 } }],
  [4, { rate: { atLeast: 0.95 }, cpu: { atMost: 1.25 }, peerRate: { atLeast: 1 } }],
]);

const details = {
  cpuMicrosPerEvent: figures.cpuMicrosPerEvent,
  clientCpuMicrosPerEvent: figures.clientCpuMicrosPerEvent,
  serverCpuMicrosPerEvent: figures.serverCpuMicrosPerEvent,
  secondHalfCpuMicrosPerEvent: figures.secondHalfCpuMicrosPerEvent,
  secondHalfEventsPerSecond: figures.secondHalfEventsPerSecond,
  walBytesPerEvent: figures.walBytesPerEvent,
  largestSharePercent: figures.largestSharePercent,
  smallestSharePercent: figures.smallestSharePercent,
  startupMs: ({ startupMs }: { startupMs: number }) => startupMs,
};

interface Measured {
  contender: Contender;
  processes: number;
  rate: Measurement;
  /** `undefined` where the server's processor time cannot be told. */
  cpu: Measurement | undefined;
  /** Without most of the compiling that every new process does. */
  secondHalfCpu: Measurement | undefined;
}

/** What several processes on one backlog do, against one process and against graphile-worker with as many. */
export function oneBacklogReport(results: readonly EntrantResult[], options: BenchOptions): Measurement[] {
  const measured = results.map((result): Measured => {
    const { contender, processes } = result;
    const name = `${contender.name}, ${processes} ${processes === 1 ? 'process' : 'processes'} on one backlog`;
    const rate: Measurement = {
      ...rateOf('peers', result, options, details),
      name,
      eventsByProcess: result.rounds.map(({ callsByProcess }) => callsByProcess),
    };
    const cpu = costOf(result, rate, `CPU of ${name}`, 'us/event', figures.cpuMicrosPerEvent);
    const secondHalfCpu = costOf(
      result,
      rate,
      `CPU in the second half of ${name}`,
      'us/event',
      figures.secondHalfCpuMicrosPerEvent,
    );
    return { contender, processes, rate, cpu, secondHalfCpu };
  });
  const find = ({ name }: Contender, processes: number) =>
    measured.find((other) => other.contender.name === name && other.processes === processes);
  const comparisons = measured.flatMap((own) => {
    const { contender, processes } = own;
    const ours = contender.name === postcommit.name;
    const goals = ours ? goalsByProcesses.get(processes) : undefined;
    return [
      ...(processes === 1 ? [] : against(own, find(contender, 1), goals?.rate, goals?.cpu)),
      ...(ours ? against(own, find(graphileWorkerLocalQueue, processes), goals?.peerRate) : []),
    ];
  });
  return [...measured.map(({ rate }) => rate), ...comparisons];
}

function against(own: Measured, baseline: Measured | undefined, rateGoal?: Goal, cpuGoal?: Goal): Measurement[] {
  if (!baseline) return [];
  return [
    compare(own.rate, baseline.rate, rateGoal),
    ...(own.cpu && baseline.cpu ? [compare(own.cpu, baseline.cpu, cpuGoal)] : []),
    ...(own.secondHalfCpu && baseline.secondHalfCpu ? [compare(own.secondHalfCpu, baseline.secondHalfCpu)] : []),
  ];
}
