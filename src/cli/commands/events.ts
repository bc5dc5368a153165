import type { Command } from 'commander';
import { InvalidArgumentError, Option } from 'commander';
import { PostcommitError } from '../../errors.ts';
import { quantity } from '../../format.ts';
import { payloadCharactersMax } from '../../outbox/operating/find.ts';
import type { EventStatus, EventSummary } from '../../outbox/operating/list.ts';
import { eventStatuses } from '../../outbox/operating/list.ts';
import { wholeNumber } from '../arguments.ts';
import { runBulk } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { eventJson, findEvents, printEvent } from '../event-details.ts';
import { instant } from '../output.ts';
import type { FlagConditions } from '../selection.ts';
import { addConditions, targetOf } from '../selection.ts';
import type { Terminal } from '../terminal.ts';

interface EventsOptions extends FlagConditions {
  status?: EventStatus;
  order: 'newest' | 'oldest';
  limit: number;
  after?: string;
}

interface ChangeOptions extends FlagConditions {
  all?: boolean;
  yes?: boolean;
}

export function addEvents(program: Command, terminal: Terminal): void {
  const events = program
    .command('events')
    .summary('list events, show one, make delayed ones due, cancel undelivered ones')
    .description(
      'Events of the log, delivered or not. Without a command: list them, or show one, with the options of `postcommit events list`.',
    )
    .addHelpText(
      'after',
      examples(
        ['the newest events', 'events'],
        ['undelivered events, oldest first', 'events --status pending --order oldest'],
        ['one event with its history', 'events 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
      ),
    );
  addList(events, terminal);
  addMakeDue(events, terminal);
  addCancel(events, terminal);
}

function addList(events: Command, terminal: Terminal): void {
  const list = events
    .command('list', { isDefault: true })
    .summary('list events, or show one (default)')
    .description(
      'List events, newest first. With an id or a seq: show that event with every attempt and its error, every delivery, and the commands that apply to it.',
    )
    .argument('[id]', 'id or seq of one event')
    .option('--status <status>', `only ${eventStatuses.join(', ')}`, statusArgument);
  addConditions(list)
    .addOption(new Option('--order <order>', 'which events come first').choices(['newest', 'oldest']).default('newest'))
    .option('--limit <n>', 'maximum number of rows', wholeNumber(1, 1_000), 20)
    .option('--after <cursor>', 'start after this row: the cursor that the previous page printed')
    .addHelpText(
      'after',
      examples(
        ['the newest events', 'events'],
        ['events of one order in the last two hours', 'events --aggregate order:42 --from 2h'],
        ['one event with its history', 'events 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
      ),
    )
    .addHelpText('after', payloadHelp)
    .action(async (id: string | undefined, options: EventsOptions, command: Command) => {
      const context = contextOf(command, terminal);
      if (id === undefined) return listEvents(context, options);
      const extra = Object.keys(options).find((name) => command.getOptionValueSource(name) === 'cli');
      if (extra) throw new PostcommitError('POSTCOMMIT_E_USAGE', `--${extra} cannot be combined with an id.`);
      return showEvent(context, id);
    });
}

const payloadHelp = `With an id and --json, a payload over ${quantity(payloadCharactersMax, 'character')} is cut: payload is null,
payloadCut is true, and payloadJson has the beginning of its text.`;

function addMakeDue(events: Command, terminal: Terminal): void {
  addConditions(events.command('make-due'))
    .summary('deliver delayed events now, without waiting for their delay or backoff')
    .description(
      'Make events due now that are delayed, or in backoff after a failed attempt. Relays deliver them next, and later events of the same aggregates follow in order. Events that a relay has claimed are not changed; exit code 1 if one of the ids is such an event.',
    )
    .argument('[ids...]', 'ids or seqs of events')
    .option('--all', 'all delayed events')
    .option('--yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      examples(
        ['one event', 'events make-due 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
        ['the receiver works again: skip the backoff', 'events make-due --type order.created'],
      ),
    )
    .action(async (ids: string[], options: ChangeOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, ...conditions } = options;
      const target = targetOf(ids, conditions, all);
      if (ids.length === 0) await confirm(context, `Make ${all ? 'all' : 'the matching'} delayed events due now?`, yes);
      const words = { noun: 'delayed event', done: 'made due', named: ids.length > 0 };
      await runBulk(context, words, (admin, bulk) => admin.makeDue(target, bulk));
    });
}

function addCancel(events: Command, terminal: Terminal): void {
  addConditions(events.command('cancel'))
    .summary('never deliver undelivered events')
    .description(
      'Cancel undelivered events, in the queue or waiting for a destination: they are never delivered, and later events of their aggregates no longer wait for them. They become discarded dead letters with the reason cancelled, who cancelled them and why. If a relay is delivering an event, its handler is told to stop (ctx.signal) and its result does not count. Exit code 1 if one of the ids is already delivered.',
    )
    .argument('[ids...]', 'ids or seqs of events')
    .option('--all', 'all undelivered events')
    .option('--yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      examples(
        ['one event', 'events cancel 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f --why "wrong date"'],
        ['events of a wrong import', 'events cancel --type order.imported --from 2h'],
      ),
    )
    .action(async (ids: string[], options: ChangeOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, ...conditions } = options;
      const target = targetOf(ids, conditions, all);
      const which =
        ids.length > 0 ? quantity(ids.length, 'event') : `${all ? 'all' : 'the matching'} undelivered events`;
      await confirm(context, `Cancel ${which}? ${ids.length === 1 ? 'It' : 'They'} will never be delivered.`, yes);
      const words = { noun: 'undelivered event', done: 'cancelled', named: ids.length > 0 };
      await runBulk(context, words, (admin, bulk) => admin.cancel(target, bulk));
    });
}

async function listEvents(context: Context, options: EventsOptions): Promise<void> {
  const { output } = context;
  const page = await withAdmin(context, (admin) => admin.list(options));
  output.show(page, () => {
    if (page.events.length === 0) {
      output.line('no events');
      return;
    }
    output.table(['ID', 'STATUS', 'ATTEMPTS', 'TYPE', 'AGGREGATE', 'EMITTED', 'LAST ERROR'], page.events.map(row));
    if (page.next !== undefined)
      output.line(output.paint.dim(`more rows: repeat the command with --after ${page.next}`));
  });
}

function row(event: EventSummary): string[] {
  return [
    event.id,
    event.status,
    String(event.attempts),
    event.type,
    `${event.aggregate.type}:${event.aggregate.id}`,
    instant(event.createdAt),
    event.lastError ?? '',
  ];
}

/** Shows the event, or all events that share the id. With --json only the first, with the seqs of the others. */
async function showEvent(context: Context, id: string): Promise<void> {
  const { output } = context;
  const { events, destinations } = await withAdmin(context, async (admin) => {
    const found = await findEvents(admin, id);
    const isWaiting = found.some(({ waitingFor }) => waitingFor.length > 0);
    return { events: found, destinations: isWaiting ? await admin.destinations() : [] };
  });
  const [first] = events;
  if (first === undefined)
    throw new PostcommitError(
      'POSTCOMMIT_E_NOT_FOUND',
      `No event has the id or seq ${id}; retention may have deleted it.`,
    );
  output.show(eventJson(first), () => {
    if (events.length > 1)
      output.line(output.paint.yellow(`${events.length} events have this id; use a seq to select one`));
    for (const event of events) {
      if (events.length > 1) output.line();
      printEvent(event, destinations, new Date(), output);
    }
  });
}

function statusArgument(text: string): EventStatus {
  const status = eventStatuses.find((each) => each === text.toUpperCase());
  if (status === undefined) throw new InvalidArgumentError(`The status must be one of ${eventStatuses.join(', ')}.`);
  return status;
}
