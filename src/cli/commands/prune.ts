import type { Command } from 'commander';
import type { PruneOptions, PruneResult } from '../../admin/prune.ts';
import { duration, quantity } from '../../format.ts';
import { keepMsDefault } from '../../retention.ts';
import { durationArgument } from '../arguments.ts';
import { endInterrupted, watched } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import type { Terminal } from '../terminal.ts';

interface PruneFlags {
  olderThan?: number;
  processedOlderThan?: number;
  dryRun?: boolean;
  yes?: boolean;
}

export function addPrune(program: Command, terminal: Terminal): void {
  program
    .command('prune')
    .summary('remove old delivered events now')
    .description(
      'Remove events that were emitted long ago, and what is remembered of processed ones, now and to the end. Relays do the same by themselves, bit by bit. What is not delivered, or is a dead letter that nobody has discarded, stays whatever its age. In chunks of 1,000 beside the normal work; Ctrl-C ends it after a chunk, and what is done stays done.',
    )
    .option(
      '--older-than <duration>',
      'age of what is removed, such as 30d or 12h (default: maintenance.keepEventsMs of the config file, 30d)',
      durationArgument,
    )
    .option(
      '--processed-older-than <duration>',
      'the same for processed_events (default: --older-than, then maintenance.keepProcessedMs, 30d)',
      durationArgument,
    )
    .option('--dry-run', 'only count')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      examples(
        ['what would go?', 'prune --older-than 30d --dry-run'],
        ['from cron, when no relay does maintenance', 'prune --older-than 30d --yes --json'],
      ),
    )
    .action(async (flags: PruneFlags, command: Command) => {
      const context = contextOf(command, terminal);
      const ages = await agesOf(context, flags);
      const { dryRun = false, yes = false } = flags;
      if (!dryRun) await confirm(context, `Remove delivered events older than ${age(ages.olderThanMs)}?`, yes);
      const result = await watched(context, 'looking for old events', ({ signal, tell: show }) => {
        const onProgress = (count: number) => show(`${count.toLocaleString('en-US')} ${doneWords(dryRun)}`);
        return withAdmin(context, (admin) => admin.prune({ ...ages, dryRun, signal, onProgress }));
      });
      context.output.show({ dryRun, ...ages, ...result }, () => tell(context, { dryRun, ...ages }, result));
      if (result.interrupted) {
        const done = `${quantity(result.events, 'event')} ${doneWords(dryRun)}`;
        endInterrupted(context, done, 'run the same command again');
      }
    });
}

type Ages = Required<Pick<PruneOptions, 'olderThanMs' | 'processedOlderThanMs'>>;

async function agesOf({ settings }: Context, { olderThan, processedOlderThan }: PruneFlags): Promise<Ages> {
  const { maintenance } = (await settings.configFile())?.config ?? {};
  const configured = maintenance || {};
  return {
    olderThanMs: olderThan ?? configured.keepEventsMs ?? keepMsDefault,
    processedOlderThanMs: processedOlderThan ?? olderThan ?? configured.keepProcessedMs ?? keepMsDefault,
  };
}

function doneWords(dryRun: boolean): string {
  return dryRun ? 'would be removed' : 'removed';
}

function age(ms: number): string {
  return ms === Number.POSITIVE_INFINITY ? 'any age' : duration(ms);
}

function tell(
  { output }: Context,
  { dryRun, olderThanMs, processedOlderThanMs }: Ages & { dryRun: boolean },
  { events, kept, processed, partitions, keptPartitions }: PruneResult,
): void {
  const done = doneWords(dryRun);
  if (partitions.length > 0) {
    output.line(
      `${quantity(partitions.length, 'partition')} ${dryRun ? 'would be dropped' : 'dropped'}: ${partitions.join(', ')}`,
    );
  }
  for (const { number, reason } of keptPartitions) output.line(`  partition ${number} stays: ${reason}`);
  output.line(`${quantity(events, 'event')} older than ${age(olderThanMs)} ${done}`);
  const stays: [number, string, string][] = [
    [kept.queued, 'not delivered yet', 'postcommit status'],
    [kept.shelved, 'waiting for a destination', 'postcommit destinations'],
    [kept.dead, 'dead letters: retry or discard them', 'postcommit dead list'],
    [kept.orphaned, 'never queued nor delivered', 'postcommit requeue-orphans'],
  ];
  for (const [count, why, see] of stays) {
    if (count > 0) output.line(`  kept ${count.toLocaleString('en-US')} ${why}${output.paint.dim(`  see: ${see}`)}`);
  }
  output.line(
    `${processed.toLocaleString('en-US')} of processed_events older than ${age(processedOlderThanMs)} ${done}`,
  );
}
