import type { Command } from 'commander';
import type { OutboxAdmin } from '../../admin/admin.ts';
import type { RelayDifferences } from '../../admin/relay-differences.ts';
import { relayDifferences, someOf } from '../../admin/relay-differences.ts';
import { ago, duration, quantity, shellOperand } from '../../format.ts';
import type { OutboxCounts } from '../../outbox/operating/count.ts';
import type { DestinationInfo } from '../../outbox/operating/list-destinations.ts';
import type { MaintenanceInfo } from '../../outbox/operating/list-maintenance.ts';
import type { MissingTarget } from '../../outbox/operating/list-missing-targets.ts';
import type { RunningHandler } from '../../outbox/operating/list-progress.ts';
import type { QueueInfo } from '../../outbox/operating/list-queues.ts';
import type { RelayInfo } from '../../outbox/operating/list-relays.ts';
import type { ScheduleInfo } from '../../outbox/operating/list-schedules.ts';
import type { UnhandledType } from '../../outbox/operating/list-unhandled-types.ts';
import { durationArgument, wholeNumber } from '../arguments.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { printDestinations } from '../destination-table.ts';
import { percent } from '../event-details.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import type { Output } from '../output.ts';
import { printable } from '../output.ts';
import { printQueues } from '../queue-table.ts';
import { printSchedules } from '../schedule-table.ts';
import type { Terminal } from '../terminal.ts';
import { watch } from '../watch.ts';

interface Thresholds {
  pendingMax?: number;
  oldestPendingMsMax?: number;
  deadLettersMax?: number;
  relaysMin?: number;
}

interface StatusFlags extends Thresholds {
  /** The interval in ms; true without one. */
  watch?: number | true;
}

interface Exceeded {
  check: keyof Thresholds;
  limit: number;
  found: number;
}

const anyNumber = wholeNumber(0, 999_999_999_999);
const watchIntervalMs = 2_000;
/** A state costs a few statements, and an interval of 0 would run them without a pause. */
const watchIntervalMsMin = 200;
/** The longest delay of a timer. */
const watchIntervalMsMax = 2_147_483_647;

export function addStatus(program: Command, terminal: Terminal): void {
  program
    .command('status')
    .summary('show backlog, dead letters, destinations and relays')
    .description(
      'Show how many events are pending and for how long, how many dead letters there are, the queues if there are several, which destinations are down or paused, which relays are alive, and the progress of handlers that report it (the 20 longest-running). With a threshold option it is a check for scripts and monitors: exit code 1 if a threshold is exceeded. Counts over 100,000 are estimates, marked with ~.',
    )
    .option('--pending-max <n>', 'fail if more events are pending', anyNumber)
    .option('--oldest-pending-ms-max <n>', 'fail if an event has been due for longer', anyNumber)
    .option('--dead-letters-max <n>', 'fail if there are more dead letters', anyNumber)
    .option('--relays-min <n>', 'fail if fewer relays are alive', anyNumber)
    .option('--watch [interval]', 'show it again every interval until Ctrl-C (default interval: 2s)', durationArgument)
    .addHelpText(
      'after',
      examples(
        ['current state', 'status'],
        ['current state, live', 'status --watch'],
        ['alert if the outbox is stuck', 'status --oldest-pending-ms-max 60000 --dead-letters-max 0 --relays-min 1'],
        ['one figure for a script', 'status --json | jq .pending'],
      ),
    )
    .action(async ({ watch: watching, ...thresholds }: StatusFlags, command: Command) => {
      const context = contextOf(command, terminal);
      const schema = await context.settings.schema();
      await withAdmin(context, async (admin) => {
        const read = () => readStatus(admin, schema, thresholds);
        if (watching !== undefined) {
          const intervalMs = watching === true ? watchIntervalMs : watching;
          return watch(context, Math.min(watchIntervalMsMax, Math.max(watchIntervalMsMin, intervalMs)), read, show);
        }
        const status = await read();
        show(status, context.output);
        if (!status.ok) throw new ExitWith(exitCodes.failed);
      });
    });
}

type Status = Awaited<ReturnType<typeof readStatus>>;

async function readStatus(admin: OutboxAdmin, schema: string, thresholds: Thresholds) {
  const counts = await admin.counts();
  const rest = {
    queues: await admin.queues(),
    destinations: await admin.destinations(),
    missingTargets: await admin.missingTargets(),
    unhandledTypes: await admin.unhandledTypes(),
    progress: await admin.progress(),
    maintenance: await admin.maintenance(),
    schedules: await admin.schedules.list(),
  };
  const relays = (await admin.relays()).filter(({ state }) => state === 'alive' || state === 'overdue');
  const relaysAlive = relays.filter(({ state }) => state === 'alive').length;
  const exceeded = check(thresholds, counts, relaysAlive);
  const ok = exceeded.length === 0;
  return {
    schema,
    counts,
    relaysAlive,
    ok,
    facts: { ...rest, relays, differences: relayDifferences(relays), exceeded },
  };
}

function show({ schema, counts, relaysAlive, ok, facts }: Status, output: Output): void {
  output.show({ schema, ...counts, relaysAlive, ok, ...facts }, () => print(output, { schema, counts, ...facts }));
}

function check(thresholds: Thresholds, counts: OutboxCounts, relaysAlive: number): Exceeded[] {
  const { pendingMax, oldestPendingMsMax, deadLettersMax, relaysMin } = thresholds;
  const exceeded: Exceeded[] = [];
  const atMost = (name: keyof Thresholds, limit: number | undefined, found: number) => {
    if (limit !== undefined && found > limit) exceeded.push({ check: name, limit, found });
  };
  atMost('pendingMax', pendingMax, counts.pending);
  atMost('oldestPendingMsMax', oldestPendingMsMax, counts.oldestPendingMs ?? 0);
  atMost('deadLettersMax', deadLettersMax, counts.failed);
  if (relaysMin !== undefined && relaysAlive < relaysMin) {
    exceeded.push({ check: 'relaysMin', limit: relaysMin, found: relaysAlive });
  }
  return exceeded;
}

interface StatusFacts {
  schema: string;
  counts: OutboxCounts;
  queues: readonly QueueInfo[];
  destinations: readonly DestinationInfo[];
  missingTargets: readonly MissingTarget[];
  unhandledTypes: readonly UnhandledType[];
  relays: readonly RelayInfo[];
  differences: RelayDifferences;
  progress: readonly RunningHandler[];
  maintenance: MaintenanceInfo;
  schedules: readonly ScheduleInfo[];
  exceeded: readonly Exceeded[];
}

function print(output: Output, facts: StatusFacts): void {
  const { schema, counts, queues, destinations, missingTargets, relays, differences, progress, maintenance } = facts;
  const { unhandledTypes, schedules, exceeded } = facts;
  const { paint } = output;
  const now = new Date();
  const line = (name: string, figure: keyof OutboxCounts['exact'], note = '', alarming = false) => {
    const number = `${counts.exact[figure] ? '' : '~'}${counts[figure].toLocaleString('en-US')}`.padStart(13);
    const remark = note && paint.dim(`  ${output.repeatFlags(note)}`);
    output.line(`${name.padEnd(13)}${alarming ? paint.red(number) : number}${remark}`);
  };
  output.line(paint.bold(`outbox in schema ${schema}`));
  line(
    'pending',
    'pending',
    counts.oldestPendingMs === null ? '' : `oldest due for ${duration(counts.oldestPendingMs)}`,
  );
  if (counts.waiting > 0) line('  not due yet', 'waiting', 'delayed, in backoff, or waiting for such an event');
  if (counts.shelved > 0) line('  shelved', 'shelved', 'waiting for a destination that is down or paused', true);
  line('processing', 'processing');
  line('delivered', 'delivered');
  if (counts.unqueued > 0)
    line('unqueued', 'unqueued', 'never queued, to queue them: npx postcommit requeue-unqueued', true);
  line('dead letters', 'failed', counts.failed > 0 ? 'see: npx postcommit dead list' : '', counts.failed > 0);
  if (counts.blocked > 0)
    line('blocked', 'blocked', 'aggregates blocked by a dead letter until it is retried or discarded', true);
  output.line();
  if (queues.some(({ name, state }) => name !== 'default' || state === 'paused')) {
    printQueues(output, queues, now);
    output.line();
  }
  const notable = destinations.filter(({ state, waiting }) => state !== 'up' || waiting > 0);
  if (notable.length > 0) {
    printDestinations(output, notable, now);
    output.line();
  }
  printRelays(output, relays, now);
  printDifferences(output, differences);
  if (relays.length > 0) {
    printMissing(output, missingTargets);
    printUnhandled(output, unhandledTypes);
  }
  printProgress(output, progress, now);
  printMaintenance(output, maintenance, now);
  const idle = schedules.filter(({ state }) => state !== 'active');
  if (idle.length > 0) {
    output.line();
    printSchedules(output, idle, now);
  }
  for (const { check: name, limit, found } of exceeded) {
    output.line(paint.red(`exceeded: ${flagOf(name)} ${limit}, found ${found}`));
  }
}

function printRelays(output: Output, relays: readonly RelayInfo[], now: Date): void {
  if (relays.length === 0) {
    output.line(output.paint.yellow(output.repeatFlags('no relay is alive; start one: npx postcommit relay')));
    return;
  }
  const figure = (relay: RelayInfo, name: string) => String(relay.stats[name] ?? 0);
  output.table(
    ['RELAY', 'STATE', 'VERSION', 'HOST', 'PID', 'STARTED', 'HEARTBEAT', 'DELIVERED', 'FAILED', 'IN FLIGHT'],
    relays.map((relay) => [
      relay.name,
      relay.state,
      relay.version ?? '-',
      relay.host,
      String(relay.pid),
      ago(relay.startedAt, now),
      ago(relay.heartbeatAt, now),
      ...['delivered', 'failed', 'inFlight'].map((name) => figure(relay, name)),
    ]),
  );
}

function printProgress(output: Output, progress: readonly RunningHandler[], now: Date): void {
  if (progress.length === 0) return;
  output.line();
  output.table(
    ['EVENT', 'TYPE', 'HANDLER', 'RELAY', 'ATTEMPT', 'PROGRESS', 'SINCE', 'REPORTED', 'NOTE'],
    progress.map(({ id, type, handler, relay, attempt, fraction, since, reportedAt, note }) => [
      id,
      type,
      handler,
      relay,
      String(attempt),
      percent(fraction),
      ago(since, now),
      ago(reportedAt, now),
      note ?? '',
    ]),
  );
}

function printDifferences(output: Output, { versions, lacking, settings }: RelayDifferences): void {
  const list = versions.map(({ version }) => printable(version)).join(', ');
  if (versions.length > 0) output.line(output.paint.dim(`live relays run different versions: ${list}`));
  for (const { relay, targets } of lacking) {
    const names = someOf(targets.map(printable));
    output.line(output.paint.yellow(`relay ${printable(relay)} does not have ${names}, but other live relays do`));
  }
  if (settings) output.line(output.paint.dim('live relays have different route, retry or poison settings'));
}

function printMissing(output: Output, missing: readonly MissingTarget[]): void {
  for (const { target, events } of missing) {
    const what = `no live relay has ${printable(target)}: ${quantity(events, 'event')} waiting for it, and their aggregates`;
    const command = `${output.repeatFlags('npx postcommit forget')} ${printable(shellOperand(target))}`;
    output.line(`${output.paint.red(what)}${output.paint.dim(`  see: ${command}`)}`);
  }
}

function printUnhandled(output: Output, unhandled: readonly UnhandledType[]): void {
  for (const { type, events } of unhandled) {
    const what = `${printable(type)}: ${quantity(events, 'event')} failed, the relay has no handler and no route for this type`;
    output.line(`${output.paint.red(what)}${output.paint.dim('  add one and restart the relay')}`);
  }
}

/** The relay that does maintenance, and the tasks that failed or have a note. */
function printMaintenance(output: Output, { leader, tasks }: MaintenanceInfo, now: Date): void {
  const lastRun = Math.max(...tasks.map(({ ranAt }) => ranAt.getTime()));
  const last = tasks.length === 0 ? 'not run yet' : `last run ${ago(new Date(lastRun), now)}`;
  output.line();
  output.line(`maintenance  ${leader ? `by relay ${printable(leader.name)}` : 'by no relay'}, ${last}`);
  for (const { task, error, failures, note, succeededAt } of tasks) {
    if (error !== undefined) {
      const since = succeededAt ? `, last success ${ago(succeededAt, now)}` : '';
      output.line(
        output.paint.red(`  ${task} failed${failures > 1 ? ` ${failures} times` : ''}${since}: ${printable(error)}`),
      );
    } else if (note !== undefined) {
      // A note is Postcommit's own text: the relay that wrote it could not know the flags.
      output.line(output.paint.dim(`  ${task}: ${printable(output.repeatFlags(note))}`));
    }
  }
}

/** The flag of an option: `--pending-max` for `pendingMax`. */
function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}
