import type { Command } from 'commander';
import type { OutboxAdmin } from '../../admin/admin.ts';
import { quantity, shellOperand } from '../../format.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { printable } from '../output.ts';
import { printQueues } from '../queue-table.ts';
import type { Terminal } from '../terminal.ts';

const nameArgument = ['<queue>', 'name of the queue, see `postcommit queues`'] as const;

export function addQueues(program: Command, terminal: Terminal): void {
  const queues = program
    .command('queues')
    .summary('list, pause or resume queues')
    .description(
      'Named queues: which events a relay works, and how many at once. An event names its queue when it is emitted; these commands list, pause and resume queues.',
    )
    .addHelpText(
      'after',
      examples(['which queues have a backlog?', 'queues'], ['claim nothing from one', 'queues pause reports']),
    );
  addList(queues, terminal);
  addPause(queues, terminal);
  addResume(queues, terminal);
}

function addList(queues: Command, terminal: Terminal): void {
  queues
    .command('list', { isDefault: true })
    .summary('list queues: ready, in flight and waiting events of each (default)')
    .description(
      'List the queue default, and every other queue that has undelivered events, is worked by a live relay or is paused. For each: how many events are ready, in flight and waiting, how long the oldest ready one has been due, and how many relays work it. Counts stop at 100,000.',
    )
    .addHelpText(
      'after',
      examples(
        ['which queues have a backlog?', 'queues'],
        ['queues that no relay works', "queues --json | jq '.queues[] | select(.relays == 0)'"],
      ),
    )
    .action(async (_options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const found = await withAdmin(context, (admin) => admin.queues());
      output.show({ queues: found }, () => printQueues(output, found, new Date()));
    });
}

function addPause(queues: Command, terminal: Terminal): void {
  queues
    .command('pause')
    .summary('claim nothing more from a queue')
    .description(
      'Pause a queue in every relay until `postcommit queues resume`. When the command returns, no relay claims anything from it; deliveries in flight end normally. Other queues are not affected, except that events of the same aggregate wait for each other. Pausing a paused queue only changes the reason.',
    )
    .argument(...nameArgument)
    .addHelpText('after', examples(['while the report database is down', 'queues pause reports --why "restore"']))
    .action(async (name: string, _options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      await changeAndPrint(context, name, (admin) => admin.pauseQueue(name), 'paused: relays keep its events');
      const { output } = context;
      const resume = output.repeatFlags('npx postcommit queues resume');
      output.line(output.paint.dim(`to resume: ${resume} ${printable(shellOperand(name))}`));
    });
}

function addResume(queues: Command, terminal: Terminal): void {
  queues
    .command('resume')
    .summary('claim from a queue again')
    .description('End the pause of a queue. Relays that work it deliver its events at once.')
    .argument(...nameArgument)
    .addHelpText('after', examples(['after the restore', 'queues resume reports']))
    .action(async (name: string, _options: unknown, command: Command) => {
      await changeAndPrint(contextOf(command, terminal), name, (admin) => admin.resumeQueue(name), 'resumed');
    });
}

/** Makes the change, then prints the state of the queue. */
async function changeAndPrint(
  context: Context,
  name: string,
  change: (admin: OutboxAdmin) => Promise<void>,
  done: string,
): Promise<void> {
  const queue = await withAdmin(context, async (admin) => {
    await change(admin);
    return (await admin.queues()).find((each) => each.name === name);
  });
  context.output.show(queue ?? null, () => {
    const ready = queue
      ? `, ${quantity(queue.ready, 'event')} ready, ${quantity(queue.inFlight, 'event')} in flight`
      : '';
    context.output.line(`${printable(name)} is ${done}${ready}`);
  });
}
