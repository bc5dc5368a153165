import type { Command } from 'commander';
import type { OutboxAdmin } from '../../admin/admin.ts';
import { shellOperand } from '../../format.ts';
import type { ScheduleInfo } from '../../outbox/operating/list-schedules.ts';
import { wholeNumber } from '../arguments.ts';
import type { Context } from '../context.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { instant, printable } from '../output.ts';
import { printSchedules } from '../schedule-table.ts';
import type { Terminal } from '../terminal.ts';

const nameArgument = ['<name>', 'name of the schedule, see `postcommit schedules`'] as const;

export function addSchedules(program: Command, terminal: Terminal): void {
  const schedules = program
    .command('schedules')
    .summary('list, pause, resume, trigger or remove schedules')
    .description(
      'Schedules of relays: events that are emitted at given times. They are declared in the configuration of relays (`schedules`); these commands list, pause, resume, trigger and remove them.',
    )
    .addHelpText(
      'after',
      examples(['list the schedules', 'schedules'], ['emit one event now', 'schedules trigger nightly-report']),
    );
  addList(schedules, terminal);
  addPause(schedules, terminal);
  addResume(schedules, terminal);
  addTrigger(schedules, terminal);
  addRemove(schedules, terminal);
}

function addList(schedules: Command, terminal: Terminal): void {
  schedules
    .command('list', { isDefault: true })
    .summary('list the schedules (default)')
    .description(
      'List every schedule that a relay was ever started with and that was not removed. For each: whether its ticks are emitted (active), and if not, why; its last and next tick; how many live relays have it, and which relay declared it last.',
    )
    .addHelpText(
      'after',
      examples(
        ['list the schedules', 'schedules'],
        ['those that emit nothing', 'schedules --json | jq \'.schedules[] | select(.state != "active")\''],
      ),
    )
    .action(async (_options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const found = await withAdmin(context, (admin) => admin.schedules.list());
      output.show({ schedules: found }, () => {
        if (found.length === 0) output.line('no schedules: a relay registers its schedules when it starts');
        else printSchedules(output, found, new Date());
      });
    });
}

function addPause(schedules: Command, terminal: Terminal): void {
  schedules
    .command('pause')
    .summary('stop a schedule')
    .description(
      'Stop a schedule until `postcommit schedules resume`. Its ticks are skipped; triggers still work. Pausing a paused schedule only changes the reason.',
    )
    .argument(...nameArgument)
    .addHelpText(
      'after',
      examples(['for a while', 'schedules pause nightly-report --why "the warehouse is being moved"']),
    )
    .action(async (name: string, _options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      await changeAndPrint(
        context,
        name,
        (admin) => admin.schedules.pause(name),
        () => `${printable(name)} is paused: its ticks are skipped`,
      );
      const { output } = context;
      const resume = output.repeatFlags('npx postcommit schedules resume');
      output.line(output.paint.dim(`to resume: ${resume} ${printable(shellOperand(name))}`));
    });
}

function addResume(schedules: Command, terminal: Terminal): void {
  schedules
    .command('resume')
    .summary('continue a schedule')
    .description('End the pause of a schedule. Ticks missed during the pause are skipped.')
    .argument(...nameArgument)
    .addHelpText('after', examples(['after a pause', 'schedules resume nightly-report']))
    .action(async (name: string, _options: unknown, command: Command) => {
      await changeAndPrint(
        contextOf(command, terminal),
        name,
        (admin) => admin.schedules.resume(name),
        ({ state, nextTickAt }) => {
          const next = nextTickAt ? `, next tick ${instant(nextTickAt)}` : '';
          return `${printable(name)} is resumed${state === 'unserved' ? ', but no live relay has it' : next}`;
        },
      );
    });
}

function addTrigger(schedules: Command, terminal: Terminal): void {
  schedules
    .command('trigger')
    .summary('emit one extra event of a schedule now')
    .description(
      'Emit one extra event of a schedule now, even if it is paused. The relay that leads the schedule emits it. If none does within --wait-ms, the request stays: a relay emits it as soon as one leads.',
    )
    .argument(...nameArgument)
    .option('--wait-ms <n>', 'how long to wait for the relay', wholeNumber(0, 600_000), 5_000)
    .addHelpText(
      'after',
      examples(
        ['run the report now', 'schedules trigger nightly-report'],
        ['from a script', 'schedules trigger nightly-report --wait-ms 0 --json'],
      ),
    )
    .action(async (name: string, { waitMs }: { waitMs: number }, command: Command) => {
      const context = contextOf(command, terminal);
      const { emitted, schedule } = await withAdmin(context, async (admin) => ({
        ...(await admin.schedules.trigger(name, { waitMs })),
        schedule: (await admin.schedules.list()).find((each) => each.name === name),
      }));
      context.output.show({ emitted, schedule: schedule ?? null }, () => {
        const why = schedule?.state === 'unserved' ? ': no live relay has it' : '';
        context.output.line(
          emitted
            ? `${printable(name)}: event emitted`
            : `${printable(name)}: requested, and no relay has emitted it yet${why}`,
        );
      });
    });
}

function addRemove(schedules: Command, terminal: Terminal): void {
  schedules
    .command('remove')
    .summary('remove a schedule that no relay has')
    .description(
      'Remove a schedule that no live relay has. Events that it emitted stay. A relay that has it adds it again when it starts, so remove it from the configuration first.',
    )
    .argument(...nameArgument)
    .addHelpText('after', examples(['after a deployment without it', 'schedules remove weekly-report']))
    .action(async (name: string, _options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      await withAdmin(context, (admin) => admin.schedules.remove(name));
      context.output.show({ removed: name }, () => context.output.line(`${printable(name)} is removed`));
    });
}

/** Makes the change, then prints the state of the schedule. */
async function changeAndPrint(
  context: Context,
  name: string,
  change: (admin: OutboxAdmin) => Promise<void>,
  text: (schedule: ScheduleInfo) => string,
): Promise<void> {
  const schedule = await withAdmin(context, async (admin) => {
    await change(admin);
    return (await admin.schedules.list()).find((each) => each.name === name);
  });
  context.output.show(schedule ?? null, () => context.output.line(schedule ? text(schedule) : 'done'));
}
