import type { Command } from 'commander';
import type { OutboxAdmin } from '../../admin/admin.ts';
import { runBulk } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import { contextOf, examples } from '../context.ts';
import type { FlagConditions } from '../selection.ts';
import { addConditions, targetOf } from '../selection.ts';
import type { Terminal } from '../terminal.ts';

interface ReplayOptions extends FlagConditions {
  all?: boolean;
  yes?: boolean;
  after?: string;
}

export function addReplay(program: Command, terminal: Terminal): void {
  addConditions(program.command('replay'))
    .summary('deliver events again that were already delivered')
    .description(
      'Deliver events again that were already delivered, to all of their handlers and destinations, with the same event ids, in order per aggregate. Brokers that deduplicate store them again. Consumers that deduplicate by event id skip them.',
    )
    .argument('[ids...]', 'ids or seqs of events')
    .option('--all', 'all delivered events')
    .option('--yes', 'do not ask for confirmation')
    .option(
      '--after <cursor>',
      'continue an interrupted or failed replay: the cursor that it printed, with the same selection',
    )
    .addHelpText(
      'after',
      examples(
        ['one event', 'replay 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
        ['events that a consumer lost this morning', 'replay --type order.created --from 6h --to 2h'],
        ['all events of one order', 'replay --aggregate order:42'],
      ),
    )
    .action(async (ids: string[], options: ReplayOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, after, ...conditions } = options;
      const target = targetOf(ids, conditions, all, after !== undefined);
      if (ids.length === 0) await confirm(context, `Deliver ${all ? 'all' : 'the matching'} events again?`, yes);
      // Of conditions it is not known how many events match: counting them would read the log twice.
      const total = async (admin: OutboxAdmin) =>
        ids.length > 0 ? ids.length : all && after === undefined ? (await admin.counts()).delivered : undefined;
      const words = { noun: 'delivered event', done: 'put back into the queue', named: ids.length > 0, total };
      await runBulk(context, words, (admin, bulk) => admin.replay(target, { ...bulk, ...(after && { after }) }));
    });
}
