// One phase of one contender in a process of its own: `fill` or `drain`. Started by drain-once.ts, answers by IPC.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { holdClaims } from './claim-gate.ts';
import { monotonicMs } from './clock.ts';
import type { Contender, Target } from './contenders/contender.ts';
import { contenderNamed } from './contenders/registry.ts';
import type { ChildTask, DrainReport } from './drain-processes.ts';
import { momentNow } from './first-claim.ts';
import type { Note } from './run-child.ts';

/** How many of the events handled last are asked for while the last settle is awaited; more than any claim holds. */
const recentMax = 5_000;
const pollIntervalMs = 2;
const firstClaimTimeoutMs = 60_000;
/** How often the parent is told how far this process is. Rarely, because telling costs processor time in each process. */
const tellIntervalMs = 50;

/**
 * The contender starts, connects and comes to its first claim, which is held until every process of the drain has got
 * that far (claim-gate.ts). The clock runs from the parent's signal to the time at which the database says that every
 * event is settled. What comes before is `startupMs`.
 */
async function drain(contender: Contender, target: Target, watchClaims: boolean): Promise<DrainReport> {
  const db = new pg.Client({ connectionString: target.connectionString });
  await db.connect();
  const backend = await db.query('select pg_backend_pid() as pid');
  const gate = holdClaims(
    contender.packageJson,
    contender.claimStatement,
    watchClaims ? contender.readClaim : undefined,
  );
  const { events } = target.backlog;

  let calls = 0;
  // Not all of them: the memory of a million ids would be counted as the contender's.
  const recent: string[] = [];
  const parent = followParent(() => calls);
  let handledAll = () => {};
  const allHandled = Promise.race([
    parent.allHandled,
    new Promise<void>((resolve) => {
      handledAll = resolve;
    }),
  ]);
  const startedAtMs = monotonicMs();
  const [running] = await Promise.all([
    contender.start(target, (id) => {
      recent[calls++ % recentMax] = id;
      if (calls === events) handledAll();
    }),
    claimReached(gate.reached),
  ]);
  const readyAtMs = monotonicMs();
  parent.note({ note: 'ready', backendPid: backend.rows[0].pid });
  await parent.go;
  const opened = gate.open();
  parent.startTelling();
  let half: DrainReport['half'];
  void parent.half.then(() => {
    half = { ...momentNow(), calls };
  });
  await allHandled;
  parent.stopTelling();
  const newest = calls % recentMax;
  const settledAtMs = await settled(contender, db, target, [...recent.slice(newest), ...recent.slice(0, newest)]);
  const ended = momentNow();
  const claims = { ...gate.counts };
  parent.note({ note: 'settled' });
  await parent.stop;
  await running.stop();
  await db.end();
  return {
    calls,
    node: process.version,
    startedAtMs,
    readyAtMs,
    openedAtMs: opened.atMs,
    settledAtMs,
    cpuMs: ended.cpuMs - opened.cpuMs,
    half: half && { ...half, cpuMs: ended.cpuMs - half.cpuMs },
    residentBytesMax: process.resourceUsage().maxRSS * 1_024,
    claims,
  };
}

async function claimReached(reached: Promise<void>): Promise<void> {
  const timer = setTimeout(() => {
    throw new Error(`No statement looked like a claim within ${firstClaimTimeoutMs / 1_000} s.`);
  }, firstClaimTimeoutMs);
  await reached;
  clearTimeout(timer);
}

/** Only the parent knows when every process is ready, and when all of them together have handled everything. */
function followParent(calls: () => number) {
  const received = (message: string) =>
    new Promise<void>((resolve) => {
      process.on('message', (said) => {
        if (said === message) resolve();
      });
    });
  const note = (content: Note) => void process.send?.(content);
  let told = 0;
  const tell = () => {
    if (calls() === told) return;
    told = calls();
    note({ note: 'calls', calls: told });
  };
  let timer: NodeJS.Timeout | undefined;
  const tellEvery = (ms: number) => {
    clearInterval(timer);
    timer = setInterval(tell, ms);
  };
  const [go, half, allHandled, stop] = [received('go'), received('half'), received('all handled'), received('stop')];
  let telling = false;
  void received('nearly done').then(() => {
    if (telling) tellEvery(pollIntervalMs);
  });
  return {
    go,
    half,
    allHandled,
    stop,
    note,
    startTelling() {
      telling = true;
      tellEvery(tellIntervalMs);
    },
    stopTelling() {
      telling = false;
      clearInterval(timer);
      tell(); // A process that did everything by itself knows it first.
    },
  };
}

/**
 * The time by which everything is settled in the database: when the first poll that found nothing left was sent. Polls
 * look up the events handled last by key, newest first, and so answer within a millisecond while something is open;
 * counting a table full of dead rows would take up to fifty and blur the result by as much. A full count confirms, and
 * is repeated if something older is still open.
 */
async function settled(contender: Contender, db: pg.Client, target: Target, ids: string[]): Promise<number> {
  const recent = ids.reverse();
  // With thousands of keys the planner would rather hash the whole table.
  await db.query('set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off');
  let askedAtMs = monotonicMs();
  while (await contender.unsettled(db, recent)) {
    await sleep(pollIntervalMs);
    askedAtMs = monotonicMs();
  }
  await db.query('reset all');
  while ((await contender.remaining(db, target.backlog)) > 0) {
    await sleep(pollIntervalMs);
    askedAtMs = monotonicMs();
  }
  return askedAtMs;
}

const task = JSON.parse(process.argv[2] ?? '') as ChildTask;
const contender = contenderNamed(task.contender);
let answer: unknown = {};
if (task.phase === 'fill') {
  await contender.prepare(task.target);
  await contender.fill(task.target);
} else {
  answer = await drain(contender, task.target, task.watchClaims ?? false);
}
process.send?.(answer, () => process.exit(0));
