import type { Command } from 'commander';
import type { OutboxAdmin } from '../../admin/admin.ts';
import { shellOperand } from '../../format.ts';
import type { DestinationInfo } from '../../outbox/operating/list-destinations.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { printDestinations, waitingEvents } from '../destination-table.ts';
import { printable } from '../output.ts';
import type { Terminal } from '../terminal.ts';

const nameArgument = ['<destination>', 'name of the destination, see `postcommit destinations`'] as const;

export function addDestinations(program: Command, terminal: Terminal): void {
  const destinations = program
    .command('destinations')
    .summary('list, pause or resume destinations')
    .description(
      'Destinations of relays: brokers and endpoints. Relays register them when they start; these commands list, pause and resume them.',
    )
    .addHelpText(
      'after',
      examples(['which destinations are down?', 'destinations'], ['stop sending to one', 'destinations pause kafka']),
    );
  addList(destinations, terminal);
  addPause(destinations, terminal);
  addResume(destinations, terminal);
}

function addList(destinations: Command, terminal: Terminal): void {
  destinations
    .command('list', { isDefault: true })
    .summary('list destinations: up, draining, down or paused, and how many events wait for them (default)')
    .description(
      'List every destination that a relay was ever started with. For each: whether it is up, draining (up, and relays send it the events that waited; `up` with --json), down (unreachable; relays probe it) or paused (by an operator), since when and why, and how many events wait for it. Counts stop at 100,000.',
    )
    .addHelpText(
      'after',
      examples(
        ['which destinations are down?', 'destinations'],
        ['how many events wait for each', "destinations --json | jq '.destinations[] | {name, waiting}'"],
      ),
    )
    .action(async (_options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const found = await withAdmin(context, (admin) => admin.destinations());
      output.show({ destinations: found }, () => {
        if (found.length === 0) output.line('no destinations: a relay registers its destinations when it starts');
        else printDestinations(output, found, new Date());
      });
    });
}

function addPause(destinations: Command, terminal: Terminal): void {
  destinations
    .command('pause')
    .summary('stop sending to a destination')
    .description(
      'Stop sending to a destination, in every relay, until `postcommit destinations resume`. Its events stay queued and no attempt is counted. Other destinations are not affected. Pausing a paused destination only changes the reason.',
    )
    .argument(...nameArgument)
    .addHelpText(
      'after',
      examples(
        ['before a broker upgrade', 'destinations pause kafka --why "cluster upgrade, until 14:00"'],
        ['from a script', 'destinations pause kafka --json'],
      ),
    )
    .action(async (name: string, _options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      await changeAndPrint(
        context,
        name,
        (admin) => admin.pauseDestination(name),
        (destination) => {
          const waiting = destination.waiting > 0 ? ` ${waitingEvents(destination)} waiting.` : '';
          return `${printable(name)} is paused: relays send nothing to it and keep its events.${waiting}`;
        },
      );
      const { output } = context;
      const resume = output.repeatFlags('npx postcommit destinations resume');
      output.line(output.paint.dim(`to resume: ${resume} ${printable(shellOperand(name))}`));
    });
}

function addResume(destinations: Command, terminal: Terminal): void {
  destinations
    .command('resume')
    .summary('send to a destination again')
    .description(
      'End the pause of a destination. Relays send the events that waited, oldest first, at most drainRateMax per second. If the destination is down, a relay probes it now instead of at its next probe.',
    )
    .argument(...nameArgument)
    .addHelpText(
      'after',
      examples(
        ['after the broker upgrade', 'destinations resume kafka'],
        ['from a script', 'destinations resume kafka --json'],
      ),
    )
    .action(async (name: string, _options: unknown, command: Command) => {
      await changeAndPrint(
        contextOf(command, terminal),
        name,
        (admin) => admin.resumeDestination(name),
        (destination) => {
          if (destination.state === 'down') return `${printable(name)} is resumed. It was down: a relay probes it now`;
          const waited = destination.waiting > 0 ? `: relays now send ${waitingEvents(destination)} that waited` : '';
          return `${printable(name)} is resumed${waited}`;
        },
      );
    });
}

/** Makes the change, then prints the state of the destination. */
async function changeAndPrint(
  context: Context,
  name: string,
  change: (admin: OutboxAdmin) => Promise<void>,
  text: (destination: DestinationInfo) => string,
): Promise<void> {
  const destination = await withAdmin(context, async (admin) => {
    await change(admin);
    return (await admin.destinations()).find((each) => each.name === name);
  });
  context.output.show(destination ?? null, () => context.output.line(destination ? text(destination) : 'done'));
}
