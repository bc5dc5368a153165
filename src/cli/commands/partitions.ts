import type { Command } from 'commander';
import { Option } from 'commander';
import type { ConversionStep } from '../../admin/partitions.ts';
import { quantity, size } from '../../format.ts';
import type { PartitionInfo, Partitioning } from '../../outbox/maintaining/list-partitions.ts';
import type { PartitionUnit } from '../../outbox/maintaining/partition.ts';
import { partitionUnits } from '../../outbox/maintaining/partition.ts';
import { wholeNumber } from '../arguments.ts';
import { endInterrupted, watched } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import type { Output } from '../output.ts';
import { instant, printable } from '../output.ts';
import type { Terminal } from '../terminal.ts';

/** Where the database stops counting what is in a partition. */
const countedMax = 10_000;

/** What a conversion changes for SQL of the user's own. */
const idsChange =
  'An id is unique within its partition: INSERT ... ON CONFLICT (id) into the log fails (42P10), use emit_once instead.';

const steps: Record<ConversionStep, string> = {
  bound: 'step 1 of 3: locking the log for a moment',
  validate: 'step 2 of 3: reading the log',
  partition: 'step 3 of 3: locking the log to exchange the tables',
};

interface ConvertFlags {
  by: PartitionUnit;
  patienceMs: number;
  yes?: boolean;
}

export function addPartitions(program: Command, terminal: Terminal): void {
  const partitions = program
    .command('partitions')
    .summary('the partitions of the log: list, convert, rotate, drop')
    .description(
      'The partitions of the log and the delivery record. Relays open the next one when the day or month is over, and drop those that retention has done with; this is for looking, and for what cannot wait.',
    )
    .addHelpText(
      'after',
      examples(
        ['which are there?', 'partitions'],
        ['partition a log that is one table', 'partitions convert --by day'],
      ),
    );
  addList(partitions, terminal);
  addConvert(partitions, terminal);
  addRotate(partitions, terminal);
  addDrop(partitions, terminal);
}

function addList(partitions: Command, terminal: Terminal): void {
  partitions
    .command('list', { isDefault: true })
    .summary('list them (the default)')
    .description(
      'List the partitions, oldest first: since when events went into it, how many, how large it is, and what keeps it from being dropped. Counts of undelivered events and dead letters end at 10,000.',
    )
    .addHelpText(
      'after',
      examples(
        ['which are there?', 'partitions'],
        ['the ones that cannot be dropped', "partitions --json | jq '.partitions[] | select(.undelivered > 0)'"],
      ),
    )
    .action(async (_options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const partitioning = await withAdmin(context, (admin) => admin.partitions.list());
      context.output.show(partitioning, () => tellPartitions(context.output, partitioning));
    });
}

function addConvert(partitions: Command, terminal: Terminal): void {
  partitions
    .command('convert')
    .summary('partition a log that is one table, or change the unit')
    .description(
      'Partition a log that is one table, while services emit and relays deliver. The log is read once without blocking other sessions, then locked exclusively for about 10 ms; if another session holds it, the command retries. What there is becomes partition 0. An id is unique within its partition from then on: INSERT ... ON CONFLICT (id) into the log fails (42P10), emit_once takes its place. There is no way back to one table. On a log that is partitioned already, this changes what the next partitions hold.',
    )
    .addOption(new Option('--by <unit>', 'what a partition is to hold').choices(partitionUnits).makeOptionMandatory())
    .option('--patience-ms <n>', 'for how long to try to get the log alone', wholeNumber(0, 86_400_000), 60_000)
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      examples(
        ['a partition a day', 'partitions convert --by day'],
        ['from a script', 'partitions convert --by month --yes --json'],
      ),
    )
    .action(async ({ by, patienceMs, yes = false }: ConvertFlags, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const { unit } = await withAdmin(context, (admin) => admin.partitions.list());
      if (unit === 'none')
        await confirm(context, `${idsChange} There is no way back. Partition the log by ${by}?`, yes);
      // Reading a large log takes its time.
      const conversion = await watched(context, steps.bound, ({ signal, tell }) => {
        const options = { patienceMs, signal, onStep: (step: ConversionStep) => tell(steps[step]) };
        return withAdmin(context, (admin) => admin.partitions.convert(by, options), { queryTimeoutMs: 86_400_000 });
      });
      output.show(conversion, () => {
        const { converted, current, interrupted } = conversion;
        if (interrupted) return;
        output.line(
          converted
            ? `${output.paint.green('done')}: the log is partitioned by ${by}; new events go into partition ${current}`
            : `the log was partitioned before; from now on a partition holds a ${by}`,
        );
        if (converted) output.line(output.paint.dim(idsChange));
      });
      if (conversion.interrupted) endInterrupted(context, 'nothing was changed', 'run the same command again');
    });
}

function addRotate(partitions: Command, terminal: Terminal): void {
  partitions
    .command('rotate')
    .summary('open the next one now')
    .description(
      'Open the next partition now, and make what is missing ahead. Relays do this by themselves when the day or month is over. Exit code 1 when a partition could not be made or opened.',
    )
    .addHelpText('after', examples(['before a large import', 'partitions rotate']))
    .action(async (_options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const rotation = await withAdmin(context, (admin) => admin.partitions.rotate());
      output.show(rotation, () => {
        const { opened, current, missing, waiting, created, error } = rotation;
        if (opened !== undefined) output.line(`new events go into partition ${opened}`);
        else if (missing === undefined) output.line(`new events still go into partition ${current}`);
        else output.line(`partition ${missing} is missing: new events go into the default partition`);
        if (waiting) output.line('the next one is opened when transactions have ended that began before it was made');
        if (created.length > 0) output.line(`made ahead: ${created.join(', ')}`);
        if (error) output.line(`${output.paint.red('not made:')} ${printable(error.message)} [${error.code}]`);
      });
      if (rotation.error || rotation.waiting) throw new ExitWith(exitCodes.failed);
    });
}

function addDrop(partitions: Command, terminal: Terminal): void {
  partitions
    .command('drop')
    .summary('drop one now')
    .description(
      'Drop a closed partition now, whatever its age: its events and the record of their delivery are gone for good. Refused while anything in it is not delivered; dead letters that nobody has resolved survive. Relays drop what is older than keepEventsMs by themselves.',
    )
    .argument('<number>', 'its number, as `postcommit partitions` shows it', wholeNumber(0, 9_000_000))
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      examples(['the oldest', 'partitions drop 0'], ['from a script', 'partitions drop 12 --yes --json']),
    )
    .action(async (number: number, { yes = false }: { yes?: boolean }, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      await confirm(context, `Drop partition ${number} with all of its events?`, yes);
      const result = await withAdmin(context, (admin) => admin.partitions.drop(number));
      output.show(result, () => {
        const kept = result.deadLetters > 0 ? `; ${quantity(result.deadLetters, 'dead letter')} of it kept` : '';
        output.line(`${output.paint.green('dropped')} partition ${number}${kept}`);
      });
    });
}

function tellPartitions(output: Output, { unit, partitions, bytes, default: rest }: Partitioning): void {
  if (unit === 'none') {
    output.line(`the log is one table, of ${size(bytes)} with the delivery record`);
    output.line(output.paint.dim('partition it with: postcommit partitions convert --by day'));
    return;
  }
  output.line(`the log is partitioned by ${unit}, ${size(bytes)} with the delivery record`);
  output.table(
    ['NUMBER', 'STATE', 'OPENED', 'CLOSED', 'EVENTS', 'SIZE', 'UNDELIVERED', 'DEAD LETTERS'],
    partitions.map(rowOf),
  );
  const withOrphans = partitions.filter(({ orphans }) => orphans > 0).map(({ number }) => number);
  if (withOrphans.length > 0) {
    const which = `partition ${withOrphans.join(', ')}`;
    output.line(
      output.paint.red(`${which}: events that were never queued; queue them with: postcommit requeue-orphans`),
    );
  }
  if (rest && rest.events !== 0) {
    const events = rest.events === null ? 'some events' : `about ${quantity(rest.events, 'event')}`;
    output.line(`in no partition: ${events}, ${size(rest.bytes)}; retention prunes these one by one`);
  }
}

function rowOf(partition: PartitionInfo): string[] {
  const { number, state, openedAt, closedAt, events, bytes, undelivered, deadLetters } = partition;
  return [
    String(number),
    state,
    openedAt ? instant(openedAt) : '-',
    closedAt ? instant(closedAt) : '-',
    events.toLocaleString('en-US'),
    size(bytes),
    counted(undelivered),
    counted(deadLetters),
  ];
}

function counted(count: number): string {
  return `${count.toLocaleString('en-US')}${count >= countedMax ? '+' : ''}`;
}
