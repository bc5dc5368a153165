import type { Command } from 'commander';
import { InvalidArgumentError, Option } from 'commander';
import { PostcommitError } from '../../errors.ts';
import type { EventStatus, EventSummary } from '../../outbox/list.ts';
import { eventStatuses } from '../../outbox/list.ts';
import { wholeNumber } from '../arguments.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { instant } from '../output.ts';
import type { Conditions } from '../selection.ts';
import { addConditions } from '../selection.ts';
import { findStories, storyJson, tellStory } from '../story.ts';
import type { Terminal } from '../terminal.ts';

interface EventsOptions extends Conditions {
  status?: EventStatus;
  order: 'newest' | 'oldest';
  limit: number;
  after?: string;
}

export function addEvents(program: Command, terminal: Terminal): void {
  const events = program
    .command('events')
    .summary('list events, or tell the whole story of one')
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
    .action(async (id: string | undefined, options: EventsOptions, command: Command) => {
      const context = contextOf(command, terminal);
      if (id === undefined) return listEvents(context, options);
      const listing = ['status', 'type', 'aggregate', 'from', 'to', 'order', 'limit', 'after'];
      const extra = listing.find((name) => command.getOptionValueSource(name) === 'cli');
      if (extra)
        throw new PostcommitError('POSTCOMMIT_E_USAGE', `--${extra} is for lists; an id names one event already.`);
      return showEvent(context, id);
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
