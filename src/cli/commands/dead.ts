import type { Command } from 'commander';
import { Option } from 'commander';
import { PostcommitError } from '../../errors.ts';
import { quantity } from '../../format.ts';
import type { DeadReason } from '../../outbox/delivering/fail.ts';
import { deadReasons } from '../../outbox/delivering/fail.ts';
import { wholeNumber } from '../arguments.ts';
import { runBulk } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { instant } from '../output.ts';
import type { FlagConditions } from '../selection.ts';
import { addConditions, targetOf } from '../selection.ts';
import { findStories, storyJson, tellStory } from '../story.ts';
import type { Terminal } from '../terminal.ts';

interface DeadConditions extends FlagConditions {
  reason?: DeadReason;
  error?: string;
}

interface ListOptions extends DeadConditions {
  includeDiscarded?: boolean;
  limit: number;
  after?: string;
}

interface BulkOptions extends DeadConditions {
  all?: boolean;
  yes?: boolean;
}

export function addDead(program: Command, terminal: Terminal): void {
  const dead = program
    .command('dead')
    .summary('dead letters: list, show, retry, discard')
    .description('Events that failed for good: look at them, deliver them again, or give them up.')
    .addHelpText(
      'after',
      examples(['what failed for good?', 'dead list'], ['deliver all of them again', 'dead retry --all']),
    );
  addList(dead, terminal);
  addShow(dead, terminal);
  addRetry(dead, terminal);
  addDiscard(dead, terminal);
}

function addDeadConditions(command: Command): Command {
  return addConditions(command)
    .addOption(new Option('--reason <reason>', 'only these').choices(deadReasons))
    .option('--error <text>', 'only those whose last error contains this text');
}

function addList(dead: Command, terminal: Terminal): void {
  addDeadConditions(dead.command('list'))
    .summary('list dead letters')
    .description('List dead letters, newest event first. --from and --to mean when they failed for good.')
    .option('--include-discarded', 'also those that were given up')
    .option('--limit <n>', 'at most so many', wholeNumber(1, 1_000), 20)
    .option('--after <cursor>', 'go on after this one, as the page before said')
    .addHelpText(
      'after',
      examples(['the newest', 'dead list'], ['timeouts of the last day', 'dead list --error timeout --from 1d']),
    )
    .action(async (options: ListOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const page = await withAdmin(context, (admin) => admin.deadLetters(options));
      output.show(page, () => {
        if (page.deadLetters.length === 0) {
          output.line('no dead letters');
          return;
        }
        const rows = page.deadLetters.map((letter) => [
          letter.id ?? letter.seq,
          letter.discardedAt ? `${letter.reason} (discarded)` : letter.reason,
          String(letter.attempts),
          letter.blocking ? 'yes' : 'no',
          letter.type ?? '(deleted)',
          letter.aggregate ? `${letter.aggregate.type}:${letter.aggregate.id}` : '-',
          instant(letter.at),
          letter.error,
        ]);
        output.table(['ID', 'REASON', 'ATTEMPTS', 'BLOCKS', 'TYPE', 'AGGREGATE', 'DEAD SINCE', 'ERROR'], rows);
        if (page.next !== undefined) output.line(output.paint.dim(`more: the same with --after ${page.next}`));
      });
    });
}

function addShow(dead: Command, terminal: Terminal): void {
  dead
    .command('show')
    .summary('tell the whole story of one')
    .description('Tell the whole story of one dead letter: every attempt with its error, payload and headers.')
    .argument('<id>', 'id or seq of the event')
    .addHelpText('after', examples(['one dead letter', 'dead show 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f']))
    .action(async (id: string, _options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const stories = await withAdmin(context, (admin) => findStories(admin, id));
      const [story] = stories.filter(({ deadLetter }) => deadLetter !== undefined);
      if (story === undefined) {
        const detail = stories[0] ? `${id} is no dead letter: it is ${stories[0].status}.` : `Looked for ${id}.`;
        throw new PostcommitError('POSTCOMMIT_E_NOT_FOUND', detail);
      }
      context.output.show(storyJson(story), () => tellStory(story, [], new Date(), context.output));
    });
}

function addRetry(dead: Command, terminal: Terminal): void {
  addDeadConditions(dead.command('retry'))
    .summary('deliver them again')
    .description(
      'Put dead letters back into the queue, with their attempts counted from zero. Targets that already have the event do not get it again. A broker that deduplicates drops an event that it stored in an earlier attempt; if that copy was deleted there, replay the event after the retry.',
    )
    .argument('[ids...]', 'ids of events')
    .option('--all', 'every dead letter that was not discarded')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      examples(
        ['one', 'dead retry 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
        ['what the outage of this morning left', 'dead retry --error ECONNREFUSED --from 6h'],
        ['all, from a script', 'dead retry --all --yes --json'],
      ),
    )
    .action(async (ids: string[], options: BulkOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, ...conditions } = options;
      const target = targetOf(ids, conditions, all);
      if (ids.length === 0) await confirm(context, `Retry ${all ? 'all' : 'the matching'} dead letters?`, yes);
      const words = { noun: 'dead letter', done: 'put back into the queue', named: ids.length > 0 };
      await runBulk(context, words, (admin, watch) => admin.retry(target, watch));
    });
}

function addDiscard(dead: Command, terminal: Terminal): void {
  addDeadConditions(dead.command('discard'))
    .summary('give them up')
    .description(
      'Give dead letters up: they are never delivered, and no longer hold their aggregate back. Their story stays.',
    )
    .argument('[ids...]', 'ids of events')
    .option('--all', 'every dead letter')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      examples(
        ['one', 'dead discard 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
        ['those that a handler rejected, of one type', 'dead discard --reason rejected --type order.created'],
      ),
    )
    .action(async (ids: string[], options: BulkOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, ...conditions } = options;
      const target = targetOf(ids, conditions, all);
      const which =
        ids.length > 0 ? quantity(ids.length, 'dead letter') : `${all ? 'all' : 'the matching'} dead letters`;
      await confirm(context, `Discard ${which}? They will never be delivered.`, yes);
      const words = { noun: 'dead letter', done: 'discarded', named: ids.length > 0 };
      await runBulk(context, words, (admin, watch) => admin.discard(target, watch));
    });
}
