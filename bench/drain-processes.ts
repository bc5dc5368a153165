import type { Serializable } from 'node:child_process';
import type pg from 'pg';
import type { ClaimCounts } from './claim-gate.ts';
import type { Contender, Target } from './contenders/contender.ts';
import type { Drain } from './drain-once.ts';
import { forkChild, type Note } from './run-child.ts';
import { serverCpuMs } from './server-cpu.ts';

export interface ChildTask {
  phase: 'fill' | 'drain';
  contender: string;
  target: Target;
  watchClaims?: boolean;
}

/** What one process of a drain reports; times by the clock that all processes share. */
export interface DrainReport {
  /** Handler calls until everything was settled and the contender had stopped. */
  calls: number;
  /** The version of Node it ran under. */
  node: string;
  startedAtMs: number;
  /** When it had started and come to its first claim. */
  readyAtMs: number;
  /** When its first claim was released. */
  openedAtMs: number;
  settledAtMs: number;
  /** Processor time between the two. */
  cpuMs: number;
  /** When all processes together had handled half of the backlog: its calls until then, its processor time since. */
  half: { atMs: number; calls: number; cpuMs: number } | undefined;
  residentBytesMax: number;
  claims: ClaimCounts;
}

/** The server's processor time without the backends of the benchmark; undefined where it cannot be told. */
export interface ServerCpu {
  /** From the start signal until everything is settled. */
  drainMs: number | undefined;
  /** Of that, since half of the backlog was handled. */
  secondHalfMs: number | undefined;
}

/** From this share of the backlog on, processes tell how far they are as often as the end is to be known exactly. */
const nearlyDoneShare = 0.9;

/**
 * Runs the processes of one drain. All of them are ready before any of them claims, and none stops before everything is
 * settled.
 */
export async function drainInProcesses(
  { node, contender, processes, interrupted, watchClaims = false }: Drain,
  target: Target,
  db: pg.Client,
): Promise<{ reports: DrainReport[]; serverCpu: ServerCpu }> {
  const { rows } = await db.query('select pg_backend_pid() as pid');
  const ownBackend: number = rows[0].pid;
  const ownBackends = new Set([ownBackend]);
  const cpuNow = () => serverCpuMs(ownBackend, ownBackends);
  const cpuAt: { start?: number | undefined; half?: number | undefined; end?: number | undefined } = {};

  const answers: ((message: Serializable) => void)[] = [];
  const calls: number[] = new Array(processes).fill(0);
  let [ready, settled] = [0, 0];
  const told = new Set<string>();
  const tellAll = (message: string) => {
    if (told.has(message)) return;
    told.add(message);
    for (const answer of answers) answer(message);
  };
  const onNote = (index: number) => (note: Note, answer: (message: Serializable) => void) => {
    answers[index] = answer;
    if (note.note === 'ready') {
      ownBackends.add(note.backendPid as number);
      if (++ready < processes) return;
      cpuAt.start = cpuNow();
      tellAll('go');
    } else if (note.note === 'settled') {
      if (++settled < processes) return;
      cpuAt.end = cpuNow();
      tellAll('stop');
    } else {
      calls[index] = note.calls as number;
      const handled = calls.reduce((sum, count) => sum + count, 0);
      if (handled >= target.backlog.events / 2 && !told.has('half')) {
        tellAll('half');
        cpuAt.half = cpuNow();
      }
      if (handled >= target.backlog.events * nearlyDoneShare) tellAll('nearly done');
      if (handled >= target.backlog.events) tellAll('all handled');
    }
  };
  // If one fails the others would wait for ever.
  const failed = new AbortController();
  const ended = AbortSignal.any([interrupted, failed.signal]);
  const task: ChildTask = { phase: 'drain', contender: contender.name, target, watchClaims };
  try {
    const reports = await Promise.all(calls.map((_, index) => child(node, task, ended, onNote(index))));
    const { start, half, end } = cpuAt;
    return { reports, serverCpu: { drainMs: difference(start, end), secondHalfMs: difference(half, end) } };
  } catch (error) {
    failed.abort();
    throw error;
  }
}

const difference = (from: number | undefined, to: number | undefined): number | undefined =>
  from === undefined || to === undefined ? undefined : to - from;

/** Creates the contender's tables in an empty database and puts the backlog in. */
export async function fill(
  node: string,
  contender: Contender,
  target: Target,
  interrupted: AbortSignal,
): Promise<void> {
  await child(node, { phase: 'fill', contender: contender.name, target }, interrupted);
}

async function child(
  node: string,
  task: ChildTask,
  interrupted: AbortSignal,
  onNote?: (note: Note, answer: (message: Serializable) => void) => void,
): Promise<DrainReport> {
  const options = {
    what: `${task.contender} ${task.phase}`,
    timeoutMs: 120_000 + task.target.backlog.events * 5,
    interrupted,
    ...(onNote && { onNote }),
  };
  return (await forkChild(node, new URL('child.ts', import.meta.url), task, options)) as DrainReport;
}
