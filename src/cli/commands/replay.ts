import type { Command } from 'commander';
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
    .summary('deliver delivered events once more')
    .description(
      'Deliver events once more that were delivered already, to all of their handlers and destinations, under the same event ids. In order per aggregate among themselves. Brokers that deduplicate store them again; consumers that deduplicate by event id leave them out.',
    )
    .argument('[ids...]', 'ids of events')
    .option('--all', 'every delivered event')
    .option('--yes', 'do not ask')
    .option('--after <cursor>', 'go on where an interrupted replay ended, as it said')
    .addHelpText(
      'after',
      examples(
        ['one', 'replay 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
        ['what a consumer lost this morning', 'replay --type order.created --from 6h --to 2h'],
        ['one order from its beginning', 'replay --aggregate order:42'],
      ),
    )
    .action(async (ids: string[], options: ReplayOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, after, ...conditions } = options;
      const target = targetOf(ids, conditions, all);
      if (ids.length === 0) await confirm(context, `Deliver ${all ? 'all' : 'the matching'} events once more?`, yes);
      const words = { noun: 'delivered event', done: 'put back into the queue', named: ids.length > 0 };
      await runBulk(context, words, (admin, watch) => admin.replay(target, { ...watch, ...(after && { after }) }));
    });
}
