import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import picocolors from 'picocolors';
import { PostcommitError } from '../errors.ts';
import { killOneRelay } from './crash.ts';
import type { DemoDashboard } from './demo-dashboard.ts';
import { openDemoDashboard } from './demo-dashboard.ts';
import type { DemoDatabase } from './demo-database.ts';
import { openDemoDatabase } from './demo-database.ts';
import { abortOnInterruption, Interrupted } from './interruption.ts';
import { OrderService } from './order-service.ts';
import { countBacklog, gatherEvidence } from './order-service-evidence.ts';
import type { Colors } from './panel.ts';
import { wrapped } from './panel.ts';
import type { Check, ProofInput } from './proof.ts';
import { checkEvidence, plural, toJson } from './proof.ts';
import { RelayFleet } from './relay-fleet.ts';
import { Scoreboard, sampleEveryMs } from './scoreboard.ts';
import type { Screen } from './screen.ts';
import { openScreen } from './screen.ts';
import { writeOrders, writersMax } from './traffic.ts';

export interface DemoOptions {
  /** How long orders are written. The demo then waits until all events are delivered. From 1 to 3,600. */
  seconds: number;
  /** Write one JSON object to standard output instead of text. */
  json: boolean;
  /** Use a new schema of this database and drop it at the end. Default: an embedded PostgreSQL. */
  databaseUrl?: string;
  /** Serves the dashboard on this port of loopback while the demo runs. Default: no dashboard. */
  dashboardPort?: number;
  /** Default: on a terminal, unless NO_COLOR is set. */
  color?: boolean;
}

/** When the poison event and the crash happen, as a share of the run; and when the replacement starts after the crash. */
const poisonAt = 0.2;
const crashAt = 0.4;
const replacementAfterMs = 700;
const drainTimeoutMs = 30_000;
const claimWidth = 17;
const textIndent = ' '.repeat(claimWidth + 5);

/**
 * Runs the demo: a service that commits and rolls back, two relays of which one is killed, and checks that no event was lost,
 * leaked or delivered out of order. Returns the exit code: 0 if all checks pass, 1 if one fails, 130 after Ctrl-C. Removes
 * everything that it created, even when it throws.
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
  const stopWatching = abortOnInterruption(ending);
  try {
    screen.print(
      options.databaseUrl === undefined ? colors.dim('  Starting PostgreSQL …') : colors.dim('  Creating a schema …'),
    );
    const database = await openDemoDatabase(options.databaseUrl);
    let dashboard: DemoDashboard | undefined;
    try {
      ending.signal.throwIfAborted();
      if (options.dashboardPort !== undefined) dashboard = await openDemoDashboard(database, options.dashboardPort);
      if (dashboard) screen.print(`  ${colors.dim('Dashboard:')} ${colors.cyan(dashboard.url)}`);
      printStatusCommand(screen, database, colors);
      const input = await runScenario(database, screen, seconds * 1_000, ending);
      const checks = checkEvidence(input);
      if (json) process.stdout.write(`${JSON.stringify(toJson(input, checks, seconds))}\n`);
      else printChecks(screen, checks, colors);
      return checks.every(({ holds }) => holds) ? 0 : 1;
    } finally {
      await dashboard?.close();
      await database.close();
    }
  } catch (error) {
    const reason = ending.signal.aborted ? ending.signal.reason : error;
    if (!(reason instanceof Interrupted)) throw reason;
    if (reason.canPrint) screen.print('\n  Interrupted: no checks ran. Everything that the demo created was removed.');
    return reason.exitCode;
  } finally {
    stopWatching();
  }
}

/** Runs the scenario on a prepared database and returns what the checks need. */
async function runScenario(
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
    board.addMilestone(`relay A and relay B are delivering, ${writersMax} writers place, pay and ship orders`);
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
      board.addMilestone(
        `order ${await service.placePoisonOrder()} has a payment event that every handler call fails for`,
        'bad',
      );
      await until(crashAt);
      const crash = await killOneRelay({ pool, schemas, service, fleet, board, signal });
      await sleep(replacementAfterMs, undefined, { signal });
      const replacement = await fleet.start('relay C', signal);
      board.addMilestone(`${replacement.name} started to replace ${crash.relay}`, 'good');
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

/** Waits until every event is delivered or a dead letter, up to a limit. After that the checks show what is missing. */
async function drain(pool: pg.Pool, { schemas }: DemoDatabase, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + drainTimeoutMs;
  while ((await countBacklog(pool, schemas)) > 0 && performance.now() < deadline) {
    await sleep(50, undefined, { signal });
  }
}

function printStatusCommand(
  screen: Screen,
  { connectionString, schemas, embedded }: DemoDatabase,
  colors: Colors,
): void {
  // In a clone there is no built `postcommit` for npx.
  const command = import.meta.url.endsWith('.ts') ? 'npm run postcommit -- status' : 'npx postcommit status';
  const target = embedded ? `--database-url ${connectionString}` : `--database-url <yours> --schema ${schemas.outbox}`;
  screen.print(colors.dim('  While it runs, see its status from another terminal:'));
  screen.print(`  ${colors.cyan(`${command} ${target}`)}\n`);
}

function printChecks(screen: Screen, checks: readonly Check[], colors: Colors): void {
  screen.print(`\n  ${colors.bold('Checks against the database')}\n`);
  const room = Math.min(process.stdout.columns ?? 120, 120) - textIndent.length - 1;
  for (const { claim, holds, shown } of checks) {
    const mark = holds ? colors.green('✓') : colors.red('✗');
    const text = wrapped(shown, Math.max(20, room)).join(`\n${textIndent}`);
    screen.print(`  ${mark} ${colors.bold(claim.padEnd(claimWidth))} ${text}`);
  }
  const failed = checks.filter(({ holds }) => !holds).length;
  screen.print(
    failed === 0
      ? `\n  ${colors.green('All checks passed.')} Everything that the demo created was removed.`
      : `\n  ${colors.red(`${plural(failed, 'check')} failed.`)} Please report it with this output.`,
  );
  const init = colors.cyan('npx postcommit init');
  screen.print(`  Next: ${init} writes a config file. README.md shows how to emit the first event.`);
}
