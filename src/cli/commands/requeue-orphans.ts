import type { Command } from 'commander';
import { runBulk } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addRequeueOrphans(program: Command, terminal: Terminal): void {
  program
    .command('requeue-orphans')
    .summary('queue events that are in the log and nowhere else')
    .description(
      'Queue events that are neither queued, waiting for a destination, dead nor recorded as delivered. There are none unless the trigger outbox_events_enqueue was disabled, or rows were deleted from outbox_queue by hand. They are delivered in order per aggregate, but later events of the same aggregate may already have been delivered. A broker that deduplicates drops an orphan that it has just stored; replay it to send it again.',
    )
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      examples(
        ['what the doctor found', 'requeue-orphans'],
        ['the same from a script', 'requeue-orphans --yes --json'],
      ),
    )
    .action(async ({ yes = false }: { yes?: boolean }, command: Command) => {
      const context = contextOf(command, terminal);
      await confirm(context, 'Queue every event that is neither queued nor recorded as delivered?', yes);
      const words = { noun: 'orphan', done: 'put into the queue', named: false };
      await runBulk(context, words, (admin, watch) => admin.requeueOrphans(watch));
    });
}
