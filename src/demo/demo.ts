import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import picocolors from 'picocolors';
import { PostcommitError } from '../errors.ts';
import { killOneRelay } from './crash.ts';
import type { DemoDatabase } from './demo-database.ts';
import { openDemoDatabase } from './demo-database.ts';
import { endEarly, Interrupted } from './ending.ts';
import { OrderService } from './order-service.ts';
import { countBacklog, gatherEvidence } from './order-service-evidence.ts';
import type { Colors } from './panel.ts';
import { wrapped } from './panel.ts';
import type { Check, ProofInput } from './proof.ts';
import { judge, plural, toJson } from './proof.ts';
import { RelayFleet } from './relay-fleet.ts';
import { Scoreboard, sampleEveryMs } from './scoreboard.ts';
import type { Screen } from './screen.ts';
import { openScreen } from './screen.ts';
import { writeOrders, writersMax } from './traffic.ts';

export interface DemoOptions {
  /** How long it runs; waiting until everything is delivered comes on top. From 1 to 3,600. */
  seconds: number;
  /** One JSON object on standard output instead of the proof in words. */
  json: boolean;
  /** Run in a new schema of this database, which is dropped at the end. Default: an embedded PostgreSQL. */
  databaseUrl?: string;
  /** Default: if the terminal can, and NO_COLOR is not set. */
  color?: boolean;
}

/** The parts of the run by its time: before the poison event, before the crash, before the replacement starts. */
const poisonAt = 0.2;
const crashAt = 0.4;
const replacementAfterMs = 700;
const drainTimeoutMs = 30_000;
const claimWidth = 17;
const proofIndent = ' '.repeat(claimWidth + 5);

/**
 * Runs the demo: a service that commits and rolls back, two relays, one of them killed, and the proof that nothing was
 * lost, leaked or out of order. Answers the exit code: 0 when the proof holds, 1 when it does not, 130 after Ctrl-C.
 * Leaves nothing behind, also when it fails; then it throws what went wrong.
 */
export async function runDemo(options: DemoOptions): Promise<number> {
  const { seconds, json } = options;
  if (!(seconds >= 1 && seconds <= 3_600)) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `seconds must be from 1 to 3,600. Got ${String(seconds)}.`);
  }
  const stream = json ? process.stderr : process.stdout;
  const colors = picocolors.createColors(options.color ?? (stream.isTTY === true && !process.env.NO_COLOR));
  const screen = openScreen(stream, colors, { quiet: json });
  const ending = new AbortController();
  const stopWatching = endEarly(ending);
  try {
    screen.print(
      options.databaseUrl === undefined ? colors.dim('  Starting PostgreSQL …') : colors.dim('  Creating a schema …'),
    );
    const database = await openDemoDatabase(options.databaseUrl);
    try {
      ending.signal.throwIfAborted();
      introduce(screen, database, colors);
      const input = await perform(database, screen, seconds * 1_000, ending);
      const checks = judge(input);
      if (json) process.stdout.write(`${JSON.stringify(toJson(input, checks, seconds))}\n`);
      else conclude(screen, checks, colors);
      return checks.every(({ holds }) => holds) ? 0 : 1;
    } finally {
      await database.close();
    }
  } catch (error) {
    const reason = ending.signal.aborted ? ending.signal.reason : error;
    if (!(reason instanceof Interrupted)) throw reason;
    if (reason.heard) screen.print('\n  Stopped early: nothing is proven, and nothing is left behind.');
    return reason.exitCode;
  } finally {
    stopWatching();
  }
}

/** Plays the whole story on a prepared database and answers what the database says about it. */
async function perform(
  database: DemoDatabase,
  screen: Screen,
  totalMs: number,
  ending: AbortController,
): Promise<ProofInput> {
  const { connectionString, schemas } = database;
  const { signal } = ending;
  const fail = (error: unknown) => ending.abort(error);
  const pool = new pg.Pool({ connectionString, max: writersMax + 2 });
  pool.on('error', () => {}); // The next query reports it.
  const service = new OrderService(pool, schemas);
  const fleet = new RelayFleet({
    assignment: { connectionString, schemas },
    onLatencies: (latenciesMs) => board.addLatencies(latenciesMs),
    onFailure: fail,
  });
  const board = new Scoreboard(service, () => fleet.members);
  let writing: Promise<void> = Promise.resolve();
  try {
    screen.start(board, totalMs);
    await Promise.all(['relay A', 'relay B'].map((name) => fleet.start(name, signal)));
    board.start();
    board.tell(`relay A and relay B deliver, ${writersMax} writers place, pay and ship orders`);
    const writeMs = totalMs - Math.min(1_500, totalMs * 0.1);
    writing = writeOrders(service, writeMs, signal);
    writing.catch(fail);
    const sampling = setInterval(
      () => void countBacklog(pool, schemas).then((n) => board.sample(n), fail),
      sampleEveryMs,
    );
    try {
      const until = (share: number) => sleep(Math.max(0, writeMs * share - board.elapsedMs), undefined, { signal });
      await until(poisonAt);
      board.tell(`order ${await service.placePoisonOrder()} has a payment that no handler understands`, 'bad');
      await until(crashAt);
      const crash = await killOneRelay({ pool, schemas, service, fleet, board, signal });
      await sleep(replacementAfterMs, undefined, { signal });
      const replacement = await fleet.start('relay C', signal);
      board.tell(`${replacement.name} started in place of ${crash.relay}`, 'good');
      await writing;
      board.phase = 'draining';
      await drain(pool, database, signal);
      await fleet.stop();
      const evidence = await gatherEvidence(pool, schemas, service.rolledBackIds, crash.outage);
      signal.throwIfAborted();
      board.finish(evidence);
      return { evidence, poisonId: service.poisonId, crash };
    } finally {
      clearInterval(sampling);
    }
  } finally {
    screen.stop();
    await fleet.stop();
    await writing.catch(() => {});
    await Promise.race([pool.end(), sleep(2_000, undefined, { ref: false })]);
  }
}

/** Waits until everything is delivered or dead, but not for ever: then the proof tells what is missing. */
async function drain(pool: pg.Pool, { schemas }: DemoDatabase, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + drainTimeoutMs;
  while ((await countBacklog(pool, schemas)) > 0 && performance.now() < deadline) {
    await sleep(50, undefined, { signal });
  }
}

function introduce(screen: Screen, { connectionString, schemas, embedded }: DemoDatabase, colors: Colors): void {
  // From a clone there is no built `postcommit` that npx could find.
  const command = import.meta.url.endsWith('.ts') ? 'npm run postcommit -- status' : 'npx postcommit status';
  const target = embedded ? `--database-url ${connectionString}` : `--database-url <yours> --schema ${schemas.outbox}`;
  screen.print(colors.dim('  While it runs, look inside from another terminal:'));
  screen.print(`  ${colors.cyan(`${command} ${target}`)}\n`);
}

function conclude(screen: Screen, checks: readonly Check[], colors: Colors): void {
  screen.print(`\n  ${colors.bold('The proof, from the database')}\n`);
  const room = Math.min(process.stdout.columns ?? 120, 120) - proofIndent.length - 1;
  for (const { claim, holds, shown } of checks) {
    const mark = holds ? colors.green('✓') : colors.red('✗');
    const text = wrapped(shown, Math.max(20, room)).join(`\n${proofIndent}`);
    screen.print(`  ${mark} ${colors.bold(claim.padEnd(claimWidth))} ${text}`);
  }
  const failed = checks.filter(({ holds }) => !holds).length;
  screen.print(
    failed === 0
      ? `\n  ${colors.green('All of it holds.')} The demo leaves nothing behind.`
      : `\n  ${colors.red(`${plural(failed, 'check')} failed.`)} Please report it with this output.`,
  );
  const init = colors.cyan('npx postcommit init');
  screen.print(`  Next: ${init} prepares a project, README.md leads to the first event.`);
}
