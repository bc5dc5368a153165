// One phase of one contender in a process of its own: `fill` or `drain`. Started by drain-once.ts, answers by IPC.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { monotonicMs } from './clock.ts';
import type { Contender, Running, Target } from './contenders/contender.ts';
import { contenderNamed } from './contenders/registry.ts';
import type { ChildTask, DrainReport } from './drain-once.ts';
import { momentNow, watchFirstClaim } from './first-claim.ts';

/** How many of the events handled last are asked for while the last settle is awaited; more than any claim holds. */
const recentMax = 5_000;
const pollIntervalMs = 2;

/**
 * The clock runs from the first claim (see first-claim.ts) until the database says that every event is settled. What
 * comes before, connecting and checking the schema, is `startupMs`.
 */
async function drain(contender: Contender, target: Target, processes: number): Promise<DrainReport> {
  const db = new pg.Client({ connectionString: target.connectionString });
  await db.connect();
  const firstClaim = watchFirstClaim(contender.packageJson, contender.claimStatement);
  const { events } = target.backlog;

  let calls = 0;
  // Not all of them: the memory of a million ids would be counted as the contender's.
  const recent: string[] = [];
  const others = processes > 1 ? followOthers(() => calls) : undefined;
  await others?.go;
  const startedAtMs = monotonicMs();
  let running: Running | undefined;
  await new Promise<void>((allHandled, failed) => {
    const onEvent = (id: string): void => {
      recent[calls++ % recentMax] = id;
      if (calls === events) allHandled();
    };
    others?.allHandled.then(allHandled, failed);
    contender.start(target, onEvent).then((started) => {
      running = started;
    }, failed);
  });
  others?.stop();
  const newest = calls % recentMax;
  const settledAtMs = await settled(contender, db, target, [...recent.slice(newest), ...recent.slice(0, newest)]);
  const cpuMs = momentNow().cpuMs - (firstClaim.moment()?.cpuMs ?? Number.NaN);
  await running?.stop();
  await db.end();
  return {
    calls,
    node: process.version,
    startedAtMs,
    firstClaimAtMs: firstClaim.moment()?.atMs,
    settledAtMs,
    cpuMs: Number.isNaN(cpuMs) ? 0 : cpuMs,
    residentBytesMax: process.resourceUsage().maxRSS * 1_024,
  };
}

/** With several processes, all start at once, and only whoever started them knows when everything has been handled. */
function followOthers(calls: () => number): { go: Promise<void>; allHandled: Promise<void>; stop(): void } {
  const heard = (message: string) =>
    new Promise<void>((resolve) => {
      process.on('message', (said) => {
        if (said === message) resolve();
      });
    });
  const go = heard('go');
  const allHandled = heard('all handled');
  process.send?.({ note: 'ready' });
  let told = 0;
  const tell = () => {
    if (calls() === told) return;
    told = calls();
    process.send?.({ note: 'calls', calls: told });
  };
  const timer = setInterval(tell, pollIntervalMs);
  return {
    go,
    allHandled,
    stop() {
      clearInterval(timer);
      tell(); // One that did everything by itself knows it first.
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
  answer = await drain(contender, task.target, task.processes);
}
process.send?.(answer, () => process.exit(0));
