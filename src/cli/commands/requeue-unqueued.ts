import type { Command } from 'commander';
import { runBulk } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addRequeueUnqueued(program: Command, terminal: Terminal): void {
  program
    .command('requeue-unqueued')
    .summary('queue events that were never queued')
    .description(
      'Queue unqueued events: events in the log that are not queued, not waiting for a destination, not dead letters and not recorded as delivered. Unqueued events exist only if the trigger outbox_events_enqueue was disabled, or rows were deleted from outbox_queue by hand. They are delivered in order per aggregate, but later events of the same aggregate may already have been delivered. A broker that deduplicates drops an unqueued that it stored recently; replay the event to send it again.',
    )
    .option('--yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      examples(
        ['after `postcommit doctor` found unqueued events', 'requeue-unqueued'],
        ['from a script', 'requeue-unqueued --yes --json'],
      ),
    )
    .action(async ({ yes = false }: { yes?: boolean }, command: Command) => {
      const context = contextOf(command, terminal);
      await confirm(context, 'Queue all events that are neither queued nor recorded as delivered?', yes);
      const words = { noun: 'unqueued event', done: 'put into the queue', named: false };
      await runBulk(context, words, (admin, bulk) => admin.requeueUnqueued(bulk));
    });
}
