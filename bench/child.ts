// One phase of one contender in a process of its own: `fill` or `drain`. Started by run-child.ts, answers by IPC.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Contender, Running, Target } from './contenders/contender.ts';
import { contenderNamed } from './contenders/registry.ts';
import { watchFirstClaim } from './first-claim.ts';
import type { ChildTask, Drained } from './run-child.ts';

/**
 * The clock runs from the first claim (see first-claim.ts) until the database says that every event is settled. What
 * comes before, connecting and checking the schema, is `startupMs`.
 */
async function drain(contender: Contender, target: Target): Promise<Drained> {
  const db = new pg.Client({ connectionString: target.connectionString });
  await db.connect();
  const firstClaim = watchFirstClaim(contender.packageJson, contender.claimStatement);
  const { events } = target.backlog;

  let calls = 0;
  const ids: string[] = new Array(events);
  const startedAtMs = performance.now();
  let running: Running | undefined;
  await new Promise<void>((allHandled, failed) => {
    const onEvent = (id: string): void => {
      ids[calls++ % events] = id;
      if (calls === events) allHandled();
    };
    contender.start(target, onEvent).then((started) => {
      running = started;
    }, failed);
  });
  const settledAtMs = await settled(contender, db, target, ids);
  await running?.stop();
  await db.end();

  const firstClaimAtMs = firstClaim.atMs();
  if (firstClaimAtMs === undefined) throw new Error(`${contender.name}: no statement looked like a claim.`);
  return {
    calls,
    node: process.version,
    startupMs: firstClaimAtMs - startedAtMs,
    drainMs: settledAtMs - firstClaimAtMs,
  };
}

/** How many of the events handled last are asked for while the last settle is awaited; more than any claim holds. */
const recentMax = 5_000;
const pollIntervalMs = 2;

/**
 * The time by which everything is settled in the database: when the first poll that found nothing left was sent. Polls
 * look up the events handled last by key, newest first, and so answer within a millisecond while something is open;
 * counting a table full of dead rows would take up to fifty and blur the result by as much. A full count confirms, and
 * is repeated if something older is still open.
 */
async function settled(contender: Contender, db: pg.Client, target: Target, ids: string[]): Promise<number> {
  const recent = ids.slice(-recentMax).reverse();
  // With thousands of keys the planner would rather hash the whole table.
  await db.query('set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off');
  let askedAtMs = performance.now();
  while (await contender.unsettled(db, recent)) {
    await sleep(pollIntervalMs);
    askedAtMs = performance.now();
  }
  await db.query('reset all');
  while ((await contender.remaining(db, target.backlog)) > 0) {
    await sleep(pollIntervalMs);
    askedAtMs = performance.now();
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
  answer = await drain(contender, task.target);
}
process.send?.(answer, () => process.exit(0));
