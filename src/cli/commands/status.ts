import type { Command } from 'commander';
import type { RelayDifferences } from '../../admin/relay-differences.ts';
import { relayDifferences, someOf } from '../../admin/relay-differences.ts';
import { duration, quantity } from '../../format.ts';
import type { OutboxCounts } from '../../outbox/operating/count.ts';
import type { DestinationInfo } from '../../outbox/operating/list-destinations.ts';
import type { MaintenanceInfo } from '../../outbox/operating/list-maintenance.ts';
import type { MissingTarget } from '../../outbox/operating/list-missing-targets.ts';
import type { RelayInfo } from '../../outbox/operating/list-relays.ts';
import { wholeNumber } from '../arguments.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { tellDestinations } from '../destination-text.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import { printable } from '../output.ts';
import { ago } from '../story.ts';
import type { Terminal } from '../terminal.ts';

interface Thresholds {
  maxPending?: number;
  maxAgeMs?: number;
  maxDead?: number;
  minRelays?: number;
}

interface Exceeded {
  check: keyof Thresholds;
  limit: number;
  found: number;
}

const anyNumber = wholeNumber(0, 999_999_999_999);

export function addStatus(program: Command, terminal: Terminal): void {
  program
    .command('status')
    .summary('how much is pending, how old, how many dead letters, which relays and destinations')
    .description(
      'Tell how much is pending and since when, how many dead letters there are, which destinations are down or paused and which relays are alive. With thresholds it is a check for scripts and monitors: exit code 1 when one is exceeded. Counts over 100,000 are estimates, marked with ~.',
    )
    .option('--max-pending <n>', 'fail when more events are pending', anyNumber)
    .option('--max-age-ms <n>', 'fail when an event has been due for longer', anyNumber)
    .option('--max-dead <n>', 'fail when there are more dead letters', anyNumber)
    .option('--min-relays <n>', 'fail when fewer relays are alive', anyNumber)
    .addHelpText(
      'after',
      examples(
        ['how is it going?', 'status'],
        ['alert on a stuck outbox', 'status --max-age-ms 60000 --max-dead 0 --min-relays 1'],
        ['one figure for a script', 'status --json | jq .pending'],
      ),
    )
    .action(async (thresholds: Thresholds, command: Command) => {
      const context = contextOf(command, terminal);
      const schema = await context.settings.schema();
      const { counts, destinations, missingTargets, relays, maintenance } = await withAdmin(context, async (admin) => ({
        counts: await admin.counts(),
        destinations: await admin.destinations(),
        missingTargets: await admin.missingTargets(),
        maintenance: await admin.maintenance(),
        relays: (await admin.relays()).filter(({ state }) => state === 'alive' || state === 'overdue'),
      }));
      const relaysAlive = relays.filter(({ state }) => state === 'alive').length;
      const exceeded = check(thresholds, counts, relaysAlive);
      const ok = exceeded.length === 0;
      const differences = relayDifferences(relays);
      const facts = { destinations, missingTargets, relays, differences, maintenance, exceeded };
      context.output.show({ schema, ...counts, relaysAlive, ok, ...facts }, () =>
        tell(context, { schema, counts, ...facts }),
      );
      if (!ok) throw new ExitWith(exitCodes.failed);
    });
}

function check(thresholds: Thresholds, counts: OutboxCounts, relaysAlive: number): Exceeded[] {
  const { maxPending, maxAgeMs, maxDead, minRelays } = thresholds;
  const exceeded: Exceeded[] = [];
  const atMost = (name: keyof Thresholds, limit: number | undefined, found: number) => {
    if (limit !== undefined && found > limit) exceeded.push({ check: name, limit, found });
  };
  atMost('maxPending', maxPending, counts.pending);
  atMost('maxAgeMs', maxAgeMs, counts.oldestPendingMs ?? 0);
  atMost('maxDead', maxDead, counts.failed);
  if (minRelays !== undefined && relaysAlive < minRelays) {
    exceeded.push({ check: 'minRelays', limit: minRelays, found: relaysAlive });
  }
  return exceeded;
}

interface Standing {
  schema: string;
  counts: OutboxCounts;
  destinations: readonly DestinationInfo[];
  missingTargets: readonly MissingTarget[];
  relays: readonly RelayInfo[];
  differences: RelayDifferences;
  maintenance: MaintenanceInfo;
  exceeded: readonly Exceeded[];
}

function tell({ output }: Context, standing: Standing): void {
  const { schema, counts, destinations, missingTargets, relays, differences, maintenance, exceeded } = standing;
  const { paint } = output;
  const now = new Date();
  const line = (name: string, figure: keyof OutboxCounts['exact'], note = '', alarming = false) => {
    const number = `${counts.exact[figure] ? '' : '~'}${counts[figure].toLocaleString('en-US')}`.padStart(13);
    output.line(`${name.padEnd(13)}${alarming ? paint.red(number) : number}${note && paint.dim(`  ${note}`)}`);
  };
  output.line(paint.bold(`outbox in schema ${schema}`));
  line(
    'pending',
    'pending',
    counts.oldestPendingMs === null ? '' : `oldest due for ${duration(counts.oldestPendingMs)}`,
  );
  if (counts.waiting > 0) line('  not due yet', 'waiting', 'delayed, in backoff, or behind such an event');
  if (counts.shelved > 0) line('  shelved', 'shelved', 'for a destination that is down or paused', true);
  line('processing', 'processing');
  line('delivered', 'delivered');
  if (counts.orphans > 0) line('orphans', 'orphans', 'never queued: postcommit requeue-orphans', true);
  line('dead letters', 'failed', counts.failed > 0 ? 'see: postcommit dead list' : '', counts.failed > 0);
  if (counts.blocked > 0) line('blocked', 'blocked', 'aggregates that wait for a dead letter to be resolved', true);
  output.line();
  const notable = destinations.filter(({ state, waiting }) => state !== 'up' || waiting > 0);
  if (notable.length > 0) {
    tellDestinations(output, notable, now);
    output.line();
  }
  tellRelays(output, relays, now);
  tellDifferences(output, differences);
  if (relays.length > 0) tellMissing(output, missingTargets);
  tellMaintenance(output, maintenance, now);
  for (const { check: name, limit, found } of exceeded) {
    output.line(paint.red(`failed: ${flagOf(name)} ${limit}, found ${found}`));
  }
}

function tellRelays(output: Context['output'], relays: readonly RelayInfo[], now: Date): void {
  if (relays.length === 0) {
    output.line(output.paint.yellow('no relay is alive: start one with `postcommit relay`'));
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

function tellDifferences(output: Context['output'], { versions, lacking, settings }: RelayDifferences): void {
  const list = versions.map(({ version }) => printable(version)).join(', ');
  if (versions.length > 0) output.line(output.paint.dim(`living relays run different versions: ${list}`));
  for (const { relay, targets } of lacking) {
    const names = someOf(targets.map(printable));
    output.line(output.paint.yellow(`relay ${printable(relay)} lacks ${names}, which other living relays have`));
  }
  if (settings) output.line(output.paint.dim('living relays differ in route, retry or poison settings'));
}

function tellMissing(output: Context['output'], missing: readonly MissingTarget[]): void {
  for (const { target, events } of missing) {
    const what = `no living relay has ${printable(target)}: ${quantity(events, 'event')} and their aggregates wait for it`;
    output.line(`${output.paint.red(what)}${output.paint.dim(`  see: postcommit forget ${printable(target)}`)}`);
  }
}

/** Who leads; and of the tasks only those that somebody should look at. */
function tellMaintenance(output: Context['output'], { leader, tasks }: MaintenanceInfo, now: Date): void {
  const lastRun = Math.max(...tasks.map(({ ranAt }) => ranAt.getTime()));
  const last = tasks.length === 0 ? 'not run yet' : `last run ${ago(new Date(lastRun), now)}`;
  output.line();
  output.line(`maintenance  ${leader ? `by ${printable(leader.name)}` : 'by no relay'}, ${last}`);
  for (const { task, error, failures, note, succeededAt } of tasks) {
    if (error !== undefined) {
      const since = succeededAt ? `, last done ${ago(succeededAt, now)}` : '';
      output.line(
        output.paint.red(`  ${task} failed${failures > 1 ? ` ${failures} times` : ''}${since}: ${printable(error)}`),
      );
    } else if (note !== undefined) {
      output.line(output.paint.dim(`  ${task}: ${printable(note)}`));
    }
  }
}

/** `maxAgeMs` as it is typed: `--max-age-ms`. */
function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}
