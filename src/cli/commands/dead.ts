import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { Option } from 'commander';
import type { OutboxAdmin } from '../../admin/admin.ts';
import type { DeadLetterTarget } from '../../admin/filters.ts';
import { PostcommitError } from '../../errors.ts';
import { quantity } from '../../format.ts';
import type { DeadReason } from '../../outbox/delivering/fail.ts';
import { deadReasons } from '../../outbox/delivering/fail.ts';
import { wholeNumber } from '../arguments.ts';
import { runBulk } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { eventJson, findEvents, printEvent } from '../event-details.ts';
import { instant } from '../output.ts';
import type { FlagConditions } from '../selection.ts';
import { addConditions, targetOf } from '../selection.ts';
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
    .summary('list, show, retry, discard or edit dead letters')
    .description(
      'Dead letters are events that relays no longer try to deliver: all attempts failed, or a handler or broker rejected them. Without a command: list them, with the options of `postcommit dead list`.',
    )
    .addHelpText(
      'after',
      examples(['which events are dead letters, and why?', 'dead'], ['retry all of them', 'dead retry --all']),
    );
  addList(dead, terminal);
  addShow(dead, terminal);
  addRetry(dead, terminal);
  addDiscard(dead, terminal);
  addEdit(dead, terminal);
}

function addDeadConditions(command: Command): Command {
  return addConditions(command)
    .addOption(new Option('--reason <reason>', 'only dead letters with this reason').choices(deadReasons))
    .option('--error <text>', 'only dead letters whose last error contains this text');
}

function addList(dead: Command, terminal: Terminal): void {
  addDeadConditions(dead.command('list', { isDefault: true }))
    .summary('list dead letters (default)')
    .description(
      'List dead letters, newest event first. --from and --to select by the time at which an event became a dead letter.',
    )
    .option('--include-discarded', 'include discarded dead letters')
    .option('--limit <n>', 'maximum number of rows', wholeNumber(1, 1_000), 20)
    .option('--after <cursor>', 'start after this row: the cursor that the previous page printed')
    .addHelpText(
      'after',
      examples(
        ['the newest dead letters', 'dead list'],
        ['timeouts of the last day', 'dead list --error timeout --from 1d'],
      ),
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
        output.table(['ID', 'REASON', 'ATTEMPTS', 'BLOCKS KEY', 'TYPE', 'AGGREGATE', 'DEAD SINCE', 'ERROR'], rows);
        if (page.next !== undefined)
          output.line(output.paint.dim(`more rows: repeat the command with --after ${page.next}`));
      });
    });
}

function addShow(dead: Command, terminal: Terminal): void {
  dead
    .command('show')
    .summary('show one dead letter')
    .description('Show one dead letter: every attempt with its error, payload and headers.')
    .argument('<id>', 'id or seq of the event')
    .addHelpText('after', examples(['one dead letter', 'dead show 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f']))
    .action(async (id: string, _options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const events = await withAdmin(context, (admin) => findEvents(admin, id));
      const [event] = events.filter(({ deadLetter }) => deadLetter !== undefined);
      if (event === undefined) {
        const detail = events[0]
          ? `${id} is not a dead letter. Its status is ${events[0].status}.`
          : `No event has the id or seq ${id}; retention may have deleted it.`;
        throw new PostcommitError('POSTCOMMIT_E_NOT_FOUND', detail);
      }
      context.output.show(eventJson(event), () => printEvent(event, [], new Date(), context.output));
    });
}

function addRetry(dead: Command, terminal: Terminal): void {
  addDeadConditions(dead.command('retry'))
    .summary('deliver dead letters again')
    .description(
      'Put dead letters back into the queue, due now, with their attempts reset. Handlers and destinations that already have the event do not get it again. A broker that deduplicates drops an event that it stored in an earlier attempt. If that copy was deleted at the broker, replay the event after the retry.',
    )
    .argument('[ids...]', 'ids or seqs of events')
    .option('--all', 'all dead letters that are not discarded')
    .option('--yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      examples(
        ['one event', 'dead retry 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
        ['dead letters of an outage this morning', 'dead retry --error ECONNREFUSED --from 6h'],
        ['all of them, from a script', 'dead retry --all --yes --json'],
      ),
    )
    .action(async (ids: string[], options: BulkOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, ...conditions } = options;
      const target = targetOf(ids, conditions, all);
      if (ids.length === 0) await confirm(context, `Retry ${all ? 'all' : 'the matching'} dead letters?`, yes);
      const total = (admin: OutboxAdmin) => countForBar(admin, target);
      const words = { noun: 'dead letter', done: 'put back into the queue', named: ids.length > 0, total };
      await runBulk(context, words, (admin, bulk) => admin.retry(target, bulk));
    });
}

function addDiscard(dead: Command, terminal: Terminal): void {
  addDeadConditions(dead.command('discard'))
    .summary('give up on dead letters')
    .description(
      'Discard dead letters: they are never delivered, and they no longer block their aggregate. Their history stays until retention removes it.',
    )
    .argument('[ids...]', 'ids or seqs of events')
    .option('--all', 'all dead letters')
    .option('--yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      examples(
        ['one event', 'dead discard 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
        ['rejected events of one type', 'dead discard --reason rejected --type order.created'],
      ),
    )
    .action(async (ids: string[], options: BulkOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, ...conditions } = options;
      const target = targetOf(ids, conditions, all);
      const which =
        ids.length > 0 ? quantity(ids.length, 'dead letter') : `${all ? 'all' : 'the matching'} dead letters`;
      await confirm(context, `Discard ${which}? ${ids.length === 1 ? 'It' : 'They'} will never be delivered.`, yes);
      const total = (admin: OutboxAdmin) => countForBar(admin, target);
      const words = { noun: 'dead letter', done: 'discarded', named: ids.length > 0, total };
      await runBulk(context, words, (admin, bulk) => admin.discard(target, bulk));
    });
}

/** Counting stops at 100,000; above that there is no bar. */
async function countForBar(admin: OutboxAdmin, target: DeadLetterTarget): Promise<number | undefined> {
  const { count } = await admin.countDeadLetters(target);
  return count < 100_000 ? count : undefined;
}

function addEdit(dead: Command, terminal: Terminal): void {
  dead
    .command('edit')
    .summary('retry a dead letter with another payload')
    .description(
      'Give a dead letter another payload and put it back into the queue, in its original position. The log keeps the payload as it was emitted. Handlers and destinations that already have the event keep the payload that they got. `postcommit dead show <id> --json` prints the current payload.',
    )
    .argument('<id>', 'id or seq of the event')
    .requiredOption('--payload-file <file>', 'a file with the new payload as JSON')
    .addHelpText(
      'after',
      examples(['correct one event', 'dead edit 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f --payload-file fixed.json']),
    )
    .action(async (id: string, { payloadFile }: { payloadFile: string }, command: Command) => {
      const context = contextOf(command, terminal);
      const payload = await readPayload(resolve(terminal.cwd, payloadFile));
      const result = await withAdmin(context, (admin) => admin.editAndRetry(id, payload));
      context.output.show(result, () => context.output.line('1 dead letter edited and put back into the queue'));
    });
}

async function readPayload(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, 'utf8'));
  } catch (cause) {
    throw new PostcommitError('POSTCOMMIT_E_USAGE', `${file} is not valid JSON: ${(cause as Error).message}.`, {
      cause,
    });
  }
}
