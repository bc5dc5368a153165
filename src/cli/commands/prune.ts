import type { Command } from 'commander';
import type { PruneOptions, PruneResult } from '../../admin/pruning.ts';
import { duration, quantity } from '../../format.ts';
import { keepMsDefault } from '../../retention.ts';
import { durationArgument } from '../arguments.ts';
import { endInterrupted, runWithProgress } from '../bulk.ts';
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
    .summary('delete old delivered events now')
    .description(
      'Delete old delivered events and old rows of processed_events now. Relays do the same in the background. Undelivered events and dead letters that are not discarded are kept, whatever their age. The command works in chunks of 1,000 rows while services and relays run; Ctrl-C stops it after a chunk.',
    )
    .option(
      '--older-than <duration>',
      'minimum age of events to delete, such as 30d or 12h (default: maintenance.keepEventsMs of the config file, 30d)',
      durationArgument,
    )
    .option(
      '--processed-older-than <duration>',
      'the same for processed_events (default: --older-than, then maintenance.keepProcessedMs, 30d)',
      durationArgument,
    )
    .option('--dry-run', 'only count, delete nothing')
    .option('--yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      examples(
        ['what would it delete?', 'prune --older-than 30d --dry-run'],
        ['from cron, when no relay does maintenance', 'prune --older-than 30d --yes --json'],
      ),
    )
    .action(async (flags: PruneFlags, command: Command) => {
      const context = contextOf(command, terminal);
      const ages = await agesOf(context, flags);
      const { dryRun = false, yes = false } = flags;
      if (!dryRun) await confirm(context, questionOf(ages), yes);
      const { result, stoppedBy } = await runWithProgress(context, 'looking for old events', ({ signal, report }) => {
        const onProgress = (count: number, share?: number) =>
          report(`${count.toLocaleString('en-US')} ${doneWords(dryRun)}`, share);
        return withAdmin(context, (admin) => admin.prune({ ...ages, dryRun, signal, onProgress }));
      });
      context.output.show({ dryRun, ...ages, ...result }, () => print(context, { dryRun, ...ages }, result));
      if (result.interrupted && stoppedBy) {
        const done = `${quantity(result.events, 'event')} ${doneWords(dryRun)}`;
        endInterrupted(context, stoppedBy, done, 'run the same command again');
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
  return dryRun ? 'would be deleted' : 'deleted';
}

const forever = Number.POSITIVE_INFINITY;

function questionOf({ olderThanMs, processedOlderThanMs }: Ages): string {
  const parts: [string, number][] = [
    ['delivered events', olderThanMs],
    ['rows of processed_events', processedOlderThanMs],
  ];
  const deleted = parts.filter(([, ms]) => ms !== forever).map(([what, ms]) => `${what} older than ${duration(ms)}`);
  if (deleted.length > 0) return `Delete ${deleted.join(' and ')}?`;
  return 'Events and rows of processed_events are kept forever. Delete only old records of relays?';
}

function print(
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
  for (const { number, reason } of keptPartitions)
    output.line(`  kept partition ${number}: ${output.repeatFlags(reason)}`);
  output.line(
    olderThanMs === forever
      ? 'events are kept forever'
      : `${quantity(events, 'event')} older than ${duration(olderThanMs)} ${done}`,
  );
  const stays: [number, string, string][] = [
    [kept.queued, 'not delivered yet', 'npx postcommit status'],
    [kept.shelved, 'waiting for a destination', 'npx postcommit destinations'],
    [kept.dead, 'dead letters: retry or discard them', 'npx postcommit dead list'],
    [kept.unqueued, 'never queued or delivered', 'npx postcommit requeue-unqueued'],
  ];
  for (const [count, why, see] of stays) {
    if (count > 0)
      output.line(
        `  kept ${count.toLocaleString('en-US')} ${why}${output.paint.dim(`  see: ${output.repeatFlags(see)}`)}`,
      );
  }
  output.line(
    processedOlderThanMs === forever
      ? 'rows of processed_events are kept forever'
      : `${quantity(processed, 'row')} of processed_events older than ${duration(processedOlderThanMs)} ${done}`,
  );
}
