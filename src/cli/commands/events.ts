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
import { instant } from '../output.ts';
import type { Conditions } from '../selection.ts';
import { addConditions, targetOf } from '../selection.ts';
import { findStories, storyJson, tellStory } from '../story.ts';
import type { Terminal } from '../terminal.ts';

interface EventsOptions extends Conditions {
  status?: EventStatus;
  order: 'newest' | 'oldest';
  limit: number;
  after?: string;
}

interface ChangeOptions {
  all?: boolean;
  yes?: boolean;
  reason?: string;
}

export function addEvents(program: Command, terminal: Terminal): void {
  const events = program
    .command('events')
    .summary('list events, tell the whole story of one, make delayed ones due, cancel undelivered ones')
    .description(
      'List events, newest first. With an id (or a seq): everything that is known of that event, every attempt with its error, every delivery, and what can be done.',
    )
    .argument('[id]', 'id or seq of one event')
    .option('--status <status>', `only ${eventStatuses.join(', ')}`, statusArgument);
  addConditions(events)
    .addOption(new Option('--order <order>', 'which come first').choices(['newest', 'oldest']).default('newest'))
    .option('--limit <n>', 'at most so many', wholeNumber(1, 1_000), 20)
    .option('--after <cursor>', 'go on after this one, as the page before said')
    .addHelpText(
      'after',
      examples(
        ['the newest events', 'events'],
        ['what is still to be delivered, oldest first', 'events --status pending --order oldest'],
        ['everything of one order in the last two hours', 'events --aggregate order:42 --from 2h'],
        ['the whole story of one event', 'events 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
      ),
    )
    .addHelpText('after', payloadHelp)
    .action(async (id: string | undefined, options: EventsOptions, command: Command) => {
      const context = contextOf(command, terminal);
      if (id === undefined) return listEvents(context, options);
      const extra = [...conditionNames, ...listingNames].find((name) => isGiven(command, name));
      if (extra)
        throw new PostcommitError('POSTCOMMIT_E_USAGE', `--${extra} is for lists; an id names one event already.`);
      return showEvent(context, id);
    });
  addMakeDue(events, terminal);
  addCancel(events, terminal);
}

const payloadHelp = `With an id and --json, a payload over ${quantity(payloadCharactersMax, 'character')} is cut: payload is null,
payloadCut is true, and payloadJson has the beginning of its text.`;

const conditionNames = ['type', 'aggregate', 'from', 'to'] as const;
const listingNames = ['status', 'order', 'limit', 'after'];

function isGiven(command: Command, name: string): boolean {
  return command.getOptionValueSource(name) === 'cli';
}

/** Commander gives an option that `events` has to `events`, also when it stands behind one of its commands. */
function conditionsOf({ parent: events }: Command): Conditions {
  const extra = listingNames.find((name) => events && isGiven(events, name));
  if (extra) throw new PostcommitError('POSTCOMMIT_E_USAGE', `--${extra} is for lists.`);
  const given = conditionNames.filter((name) => events && isGiven(events, name));
  return Object.fromEntries(given.map((name) => [name, events?.getOptionValue(name)]));
}

function addMakeDue(events: Command, terminal: Terminal): void {
  addConditions(events.command('make-due'))
    .summary('deliver delayed events now, without waiting for their delay or backoff')
    .description(
      'Make events due now that are delayed, or in backoff after a failed attempt. Relays deliver them next, and later events of the same aggregates follow in order. Events that a relay has claimed are not changed; exit code 1 if one of the ids is such an event.',
    )
    .argument('[ids...]', 'ids of events')
    .option('--all', 'every delayed event')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      examples(
        ['one', 'events make-due 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
        ['the receiver works again: skip the backoff', 'events make-due --type order.created'],
      ),
    )
    .action(async (ids: string[], options: ChangeOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false } = options;
      const target = targetOf(ids, conditionsOf(command), all);
      if (ids.length === 0) await confirm(context, `Make ${all ? 'all' : 'the matching'} delayed events due now?`, yes);
      const words = { noun: 'delayed event', done: 'made due', named: ids.length > 0 };
      await runBulk(context, words, (admin, watch) => admin.makeDue(target, watch));
    });
}

function addCancel(events: Command, terminal: Terminal): void {
  addConditions(events.command('cancel'))
    .summary('give undelivered events up')
    .description(
      'Give undelivered events up, in the queue or waiting for a destination: they are not delivered, and their aggregates go on without them. They become discarded dead letters with the reason cancelled. An event that a relay holds is left alone; exit code 1 if it was named.',
    )
    .argument('[ids...]', 'ids of events')
    .option('--all', 'every undelivered event')
    .option('--reason <text>', 'why, for the story of the events')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      examples(
        ['one', 'events cancel 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f --reason "wrong date"'],
        ['what a wrong import left', 'events cancel --type order.imported --from 2h'],
      ),
    )
    .action(async (ids: string[], options: ChangeOptions, command: Command) => {
      const context = contextOf(command, terminal);
      const { all = false, yes = false, reason } = options;
      const target = targetOf(ids, conditionsOf(command), all);
      const which =
        ids.length > 0 ? quantity(ids.length, 'event') : `${all ? 'all' : 'the matching'} undelivered events`;
      await confirm(context, `Cancel ${which}? They will never be delivered.`, yes);
      const words = { noun: 'undelivered event', done: 'cancelled', named: ids.length > 0 };
      await runBulk(context, words, (admin, watch) => admin.cancel(target, { ...watch, ...(reason && { reason }) }));
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
    if (page.next !== undefined) output.line(output.paint.dim(`more: the same with --after ${page.next}`));
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

/** Shows one event, or those that share the id, or fails because there is none. With --json the first, with the seqs of the others. */
async function showEvent(context: Context, id: string): Promise<void> {
  const { output } = context;
  const { stories, destinations } = await withAdmin(context, async (admin) => {
    const found = await findStories(admin, id);
    const isWaiting = found.some(({ waitingFor }) => waitingFor.length > 0);
    return { stories: found, destinations: isWaiting ? await admin.destinations() : [] };
  });
  const [first] = stories;
  if (first === undefined) throw new PostcommitError('POSTCOMMIT_E_NOT_FOUND', `Looked for ${id}.`);
  output.show(storyJson(first), () => {
    if (stories.length > 1)
      output.line(output.paint.yellow(`${stories.length} events have this id; name one by its seq`));
    for (const story of stories) {
      if (stories.length > 1) output.line();
      tellStory(story, destinations, new Date(), output);
    }
  });
}

function statusArgument(text: string): EventStatus {
  const status = eventStatuses.find((each) => each === text.toUpperCase());
  if (status === undefined) throw new InvalidArgumentError(`Give one of ${eventStatuses.join(', ')}.`);
  return status;
}
