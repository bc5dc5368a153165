import type { Serializable } from 'node:child_process';
import pg from 'pg';
import type { Backlog, Contender, Settings, Target } from './contenders/contender.ts';
import { type Costs, watchCosts } from './drain-costs.ts';
import { forkChild, type Note } from './run-child.ts';
import type { Server } from './server.ts';

export interface ChildTask {
  phase: 'fill' | 'drain';
  contender: string;
  target: Target;
  processes: number;
}

/** What one process of a drain reports; times by the clock that all processes share. */
export interface DrainReport {
  /** Handler calls until everything was settled and the contender had stopped. */
  calls: number;
  /** The version of Node it ran under. */
  node: string;
  startedAtMs: number;
  /** Undefined if others had done everything before it came to claim. */
  firstClaimAtMs: number | undefined;
  settledAtMs: number;
  /** Processor time from the first claim on. */
  cpuMs: number;
  residentBytesMax: number;
}

/** What a drain measured. */
export interface Drained extends Costs {
  events: number;
  node: string;
  /** From the call that starts the contender, loading its modules included, to its first claim. */
  startupMs: number;
  /** From the first claim to the last event settled in the database. */
  drainMs: number;
  eventsPerSecond: number;
  /** Processor time of the contender's processes. */
  clientCpuMs: number;
  /** The highest of its processes. */
  residentBytesMax: number;
}

export interface Drain {
  server: Server;
  node: string;
  contender: Contender;
  backlog: Backlog;
  settings: Settings;
  processes: number;
  interrupted: AbortSignal;
  /** Puts the backlog in, where the contender's own way would take too long for so many. */
  fill?: (target: Target) => Promise<void>;
  /** Somebody keeps a transaction with an old snapshot open all the time. */
  holdSnapshot?: boolean;
}

/**
 * One drain, in a database and in processes of its own. Afterwards the database is asked whether every event was
 * delivered, and the handler calls are counted.
 */
export async function drainOnce(drain: Drain): Promise<Drained> {
  const { server, contender, backlog } = drain;
  const database = `postcommit_bench_${process.pid}`;
  const connectionString = await server.createDatabase(database);
  const target: Target = { connectionString, backlog, settings: drain.settings };
  const db = new pg.Client({ connectionString });
  try {
    await (drain.fill?.(target) ?? fill(drain.node, contender, target, drain.interrupted));
    await db.connect();
    // Otherwise whoever comes first pays for hint bits, missing statistics and a checkpoint of the fill.
    await db.query('vacuum (analyze)');
    await db.query('checkpoint');
    const release = drain.holdSnapshot ? await holdSnapshot(connectionString) : undefined;
    const costs = await watchCosts(db);
    const reports = await drainInProcesses(drain, target);
    const drained = summary(reports, backlog, await costs());
    await release?.();
    await verify(db, contender, backlog, reports);
    return drained;
  } finally {
    await db.end();
    await server.dropDatabase(database);
  }
}

/** Creates the contender's tables in an empty database and puts the backlog in. */
export async function fill(
  node: string,
  contender: Contender,
  target: Target,
  interrupted: AbortSignal,
): Promise<void> {
  await child(node, { phase: 'fill', contender: contender.name, target, processes: 1 }, interrupted);
}

async function drainInProcesses(
  { node, contender, processes, interrupted }: Drain,
  target: Target,
): Promise<DrainReport[]> {
  const answers: ((message: Serializable) => void)[] = [];
  const calls: number[] = new Array(processes).fill(0);
  let ready = 0;
  const tellAll = (message: string) => {
    for (const answer of answers) answer(message);
  };
  const onNote = (index: number) => (note: Note, answer: (message: Serializable) => void) => {
    answers[index] = answer;
    if (note.note === 'ready') {
      if (++ready === processes) tellAll('go');
      return;
    }
    calls[index] = note.calls as number;
    if (calls.reduce((sum, count) => sum + count, 0) >= target.backlog.events) tellAll('all handled');
  };
  // If one fails the others would wait for ever.
  const failed = new AbortController();
  const ended = AbortSignal.any([interrupted, failed.signal]);
  try {
    return await Promise.all(
      calls.map((_, index) =>
        child(node, { phase: 'drain', contender: contender.name, target, processes }, ended, onNote(index)),
      ),
    );
  } catch (error) {
    failed.abort();
    throw error;
  }
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

async function holdSnapshot(connectionString: string): Promise<() => Promise<void>> {
  const holder = new pg.Client({ connectionString });
  await holder.connect();
  await holder.query('begin isolation level repeatable read');
  await holder.query('select 1');
  return () => holder.end();
}

function summary(reports: DrainReport[], { events }: Backlog, costs: Costs): Drained {
  const claims = reports.flatMap(({ firstClaimAtMs }) => firstClaimAtMs ?? []);
  if (claims.length === 0) throw new Error('No statement looked like a claim.');
  const firstClaimAtMs = Math.min(...claims);
  const drainMs = Math.max(...reports.map(({ settledAtMs }) => settledAtMs)) - firstClaimAtMs;
  return {
    ...costs,
    events,
    node: reports[0]?.node ?? '',
    startupMs: firstClaimAtMs - Math.min(...reports.map(({ startedAtMs }) => startedAtMs)),
    drainMs,
    eventsPerSecond: (events / drainMs) * 1_000,
    clientCpuMs: reports.reduce((sum, { cpuMs }) => sum + cpuMs, 0),
    residentBytesMax: Math.max(...reports.map(({ residentBytesMax }) => residentBytesMax)),
  };
}

/** A round in which an event was lost, repeated or left over measures something else: it fails the benchmark. */
async function verify(db: pg.Client, contender: Contender, backlog: Backlog, reports: DrainReport[]): Promise<void> {
  const remaining = await contender.remaining(db, backlog);
  if (remaining !== 0) throw new Error(`${contender.name}: ${remaining} of ${backlog.events} events are not settled.`);
  const calls = reports.reduce((sum, report) => sum + report.calls, 0);
  if (calls !== backlog.events) {
    throw new Error(`${contender.name}: ${calls} handler calls for ${backlog.events} events.`);
  }
}
