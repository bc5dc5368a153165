import pg from 'pg';
import type { ClaimCounts } from './claim-gate.ts';
import type { Backlog, Contender, Settings, Target } from './contenders/contender.ts';
import { type Costs, watchCosts } from './drain-costs.ts';
import { type DrainReport, drainInProcesses, fill, type ServerCpu } from './drain-processes.ts';
import type { Server } from './server.ts';

interface SecondHalf {
  events: number;
  ms: number;
  clientCpuMs: number;
  serverCpuMs: number | undefined;
}

/** What a drain measured. */
export interface Drained extends Costs {
  events: number;
  node: string;
  /** From starting the contender, loading its modules included, until every process has come to its first claim. */
  startupMs: number;
  /** From the start signal, which releases the first claims, to the last event settled in the database. */
  drainMs: number;
  eventsPerSecond: number;
  /** Processor time of the contender's processes from the start signal until everything is settled. */
  clientCpuMs: number;
  /** The same of all of the server's processes except the benchmark's own backends; undefined where it cannot be told. */
  drainServerCpuMs: number | undefined;
  /**
   * What was handled after the first half of the backlog. Processes are new, and compiling their code costs each of them
   * some 0.3 s of processor time, most of it in the first half. `undefined` if the drain was over before it was noticed.
   */
  secondHalf: SecondHalf | undefined;
  /** Handler calls of each process. */
  callsByProcess: number[];
  /** Of all processes together; all zero unless the claims were watched. */
  claims: ClaimCounts;
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
  /** Counts the contender's claims, which costs some processor time for each. */
  watchClaims?: boolean;
  /** Reads what else the database knows about the drain, before it is dropped. */
  inspect?: (db: pg.Client) => Promise<void>;
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
    const { reports, serverCpu } = await drainInProcesses(drain, target, db);
    const drained = summary(reports, backlog, await costs(), serverCpu);
    await release?.();
    await verify(db, contender, backlog, reports);
    await drain.inspect?.(db);
    return drained;
  } finally {
    await db.end();
    await server.dropDatabase(database);
  }
}

async function holdSnapshot(connectionString: string): Promise<() => Promise<void>> {
  const holder = new pg.Client({ connectionString });
  await holder.connect();
  await holder.query('begin isolation level repeatable read');
  await holder.query('select 1');
  return () => holder.end();
}

function summary(reports: DrainReport[], { events }: Backlog, costs: Costs, serverCpu: ServerCpu): Drained {
  const times = (pick: (report: DrainReport) => number) => reports.map(pick);
  const sum = (pick: (report: DrainReport) => number) => times(pick).reduce((total, value) => total + value, 0);
  const drainMs =
    Math.max(...times(({ settledAtMs }) => settledAtMs)) - Math.min(...times(({ openedAtMs }) => openedAtMs));
  return {
    ...costs,
    events,
    node: reports[0]?.node ?? '',
    startupMs: Math.max(...times(({ readyAtMs }) => readyAtMs)) - Math.min(...times(({ startedAtMs }) => startedAtMs)),
    drainMs,
    eventsPerSecond: (events / drainMs) * 1_000,
    clientCpuMs: sum(({ cpuMs }) => cpuMs),
    drainServerCpuMs: serverCpu.drainMs,
    secondHalf: secondHalfOf(reports, events, serverCpu),
    callsByProcess: times(({ calls }) => calls),
    claims: {
      claims: sum(({ claims }) => claims.claims),
      empty: sum(({ claims }) => claims.empty),
      claimed: sum(({ claims }) => claims.claimed),
      examined: sum(({ claims }) => claims.examined),
      waitedMs: sum(({ claims }) => claims.waitedMs),
    },
    residentBytesMax: Math.max(...times(({ residentBytesMax }) => residentBytesMax)),
  };
}

function secondHalfOf(reports: DrainReport[], events: number, { secondHalfMs }: ServerCpu): SecondHalf | undefined {
  const halves = reports.flatMap(({ half }) => half ?? []);
  if (halves.length < reports.length) return undefined;
  const sum = (pick: (half: (typeof halves)[number]) => number) =>
    halves.reduce((total, half) => total + pick(half), 0);
  return {
    events: events - sum(({ calls }) => calls),
    ms: Math.max(...reports.map(({ settledAtMs }) => settledAtMs)) - sum(({ atMs }) => atMs) / halves.length,
    clientCpuMs: sum(({ cpuMs }) => cpuMs),
    serverCpuMs: secondHalfMs,
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
