import type { Command } from 'commander';
import type { OutboxAdmin } from '../../admin/admin.ts';
import type { DestinationInfo } from '../../outbox/operating/list-destinations.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { tellDestinations, waitingEvents } from '../destination-text.ts';
import { printable } from '../output.ts';
import type { Terminal } from '../terminal.ts';

export function addDestinations(program: Command, terminal: Terminal): void {
  program
    .command('destinations')
    .summary('which destinations are up, down or paused, and what waits for them')
    .description(
      'List every destination that a relay was started with: whether it is up, down (away, and probed by the relays) or paused (by an operator), since when and why, and how many events wait for it. Counts end at 100,000.',
    )
    .addHelpText(
      'after',
      examples(
        ['what is away?', 'destinations'],
        ['events that wait for one of them', "destinations --json | jq '.destinations[] | {name, waiting}'"],
      ),
    )
    .action(async (_options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const destinations = await withAdmin(context, (admin) => admin.destinations());
      output.show({ destinations }, () => {
        if (destinations.length === 0) output.line('no destinations: a relay tells of its own when it starts');
        else tellDestinations(output, destinations, new Date());
      });
    });
}

export function addPause(program: Command, terminal: Terminal): void {
  program
    .command('pause')
    .summary('stop sending to a destination')
    .description(
      'Stop sending to a destination, in every relay, until `postcommit resume`. Its events wait and lose no attempt; other destinations go on. To pause it again changes its reason only.',
    )
    .argument('<destination>', 'its name, as `postcommit destinations` shows it')
    .option('--reason <text>', 'why, for whoever looks next')
    .addHelpText(
      'after',
      examples(
        ['before the broker is upgraded', 'pause kafka --reason "cluster upgrade, until 14:00"'],
        ['from a script', 'pause kafka --json'],
      ),
    )
    .action(async (name: string, options: { reason?: string }, command: Command) => {
      const context = contextOf(command, terminal);
      await tellAfter(
        context,
        name,
        (admin) => admin.pause(name, options),
        (destination) => {
          const waiting = destination.waiting > 0 ? ` Waiting now: ${waitingEvents(destination)}.` : '';
          return `${printable(name)} is paused: nothing is sent to it, and its events wait.${waiting}`;
        },
      );
      context.output.line(context.output.paint.dim(`go on with: postcommit resume ${printable(name)}`));
    });
}

export function addResume(program: Command, terminal: Terminal): void {
  program
    .command('resume')
    .summary('send to a destination again')
    .description(
      'End the pause of a destination: the events that waited are sent, oldest first, at no more than the drainRateMax of the relays. One that is down is tried at once instead of at its next probe.',
    )
    .argument('<destination>', 'its name, as `postcommit destinations` shows it')
    .addHelpText('after', examples(['the upgrade is done', 'resume kafka'], ['from a script', 'resume kafka --json']))
    .action(async (name: string, _options: unknown, command: Command) => {
      await tellAfter(
        contextOf(command, terminal),
        name,
        (admin) => admin.resume(name),
        (destination) => {
          const waited = destination.waiting > 0 ? `: ${waitingEvents(destination)} that waited will be sent` : '';
          return `${printable(name)} is resumed${waited}`;
        },
      );
    });
}

/** Makes the change, and tells how the destination stands after it. */
async function tellAfter(
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
