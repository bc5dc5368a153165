import type { Command } from 'commander';
import { Option } from 'commander';
import type { ConversionStep } from '../../admin/partitions.ts';
import { quantity, size } from '../../format.ts';
import type { PartitionInfo, Partitioning } from '../../outbox/maintaining/list-partitions.ts';
import type { PartitionUnit } from '../../outbox/maintaining/partition.ts';
import { partitionUnits } from '../../outbox/maintaining/partition.ts';
import { wholeNumber } from '../arguments.ts';
import { endInterrupted, runWithProgress } from '../bulk.ts';
import { confirm } from '../confirmation.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import type { Output } from '../output.ts';
import { instant, printable } from '../output.ts';
import type { Terminal } from '../terminal.ts';

/** Where the database stops counting what is in a partition. */
const countedMax = 10_000;

/** What a conversion changes for the user's own SQL. */
const idsChange =
  'Ids are unique within a partition only: INSERT ... ON CONFLICT (id) into the log fails (42P10); use emit_once instead.';

/** PostgreSQL does not say how far it has read the log, so the bar shows finished steps. */
const steps: Record<ConversionStep, [text: string, share: number]> = {
  constrain: ['step 1 of 3: locking the log for a moment', 0],
  validate: ['step 2 of 3: reading the log', 1 / 3],
  partition: ['step 3 of 3: locking the log to swap the tables', 2 / 3],
};

interface ConvertFlags {
  by: PartitionUnit;
  patienceMs: number;
  yes?: boolean;
}

export function addPartitions(program: Command, terminal: Terminal): void {
  const partitions = program
    .command('partitions')
    .summary('list, convert, rotate or drop partitions of the log')
    .description(
      'Partitions of the log and the delivery record. Relays open the next partition when the day or month is over, and drop partitions that are older than retention. Use these commands to list partitions, or to change them now.',
    )
    .addHelpText(
      'after',
      examples(
        ['list the partitions', 'partitions'],
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
    .summary('list the partitions (default)')
    .description(
      'List the partitions, oldest first: when each was opened and closed, how many events it has, its size, and what prevents dropping it. Counts of undelivered events and dead letters stop at 10,000.',
    )
    .addHelpText(
      'after',
      examples(
        ['list the partitions', 'partitions'],
        ['partitions that cannot be dropped', "partitions --json | jq '.partitions[] | select(.undelivered > 0)'"],
      ),
    )
    .action(async (_options: unknown, command: Command) => {
      const context = contextOf(command, terminal);
      const partitioning = await withAdmin(context, (admin) => admin.partitions.list());
      context.output.show(partitioning, () => printPartitions(context.output, partitioning));
    });
}

function addConvert(partitions: Command, terminal: Terminal): void {
  partitions
    .command('convert')
    .summary('partition a log that is one table, or change the unit')
    .description(
      'Partition a log that is one table, while services emit and relays deliver. The command reads the log once without blocking other sessions, then locks it exclusively for about 10 ms; if another session uses the log, it retries. Existing events become partition 0. Afterwards ids are unique within a partition only: INSERT ... ON CONFLICT (id) into the log fails (42P10); use emit_once instead. A conversion cannot be undone. If the log is already partitioned, this changes the unit of future partitions.',
    )
    .addOption(
      new Option('--by <unit>', 'time that one partition covers').choices(partitionUnits).makeOptionMandatory(),
    )
    .option(
      '--patience-ms <n>',
      'how long to retry while other sessions use the log',
      wholeNumber(0, 86_400_000),
      60_000,
    )
    .option('--yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      examples(
        ['one partition per day', 'partitions convert --by day'],
        ['from a script', 'partitions convert --by month --yes --json'],
      ),
    )
    .action(async ({ by, patienceMs, yes = false }: ConvertFlags, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      const { unit } = await withAdmin(context, (admin) => admin.partitions.list());
      if (unit === 'none')
        await confirm(context, `${idsChange} This cannot be undone. Partition the log by ${by}?`, yes);
      // Reading a large log takes minutes.
      const { result: conversion, stoppedBy } = await runWithProgress(
        context,
        steps.constrain[0],
        ({ signal, report }) => {
          const options = { patienceMs, signal, onStep: (step: ConversionStep) => report(...steps[step]) };
          return withAdmin(context, (admin) => admin.partitions.convert(by, options), { queryTimeoutMs: 86_400_000 });
        },
      );
      output.show(conversion, () => {
        const { converted, current, interrupted } = conversion;
        if (interrupted) return;
        output.line(
          converted
            ? `${output.paint.green('done')}: the log is partitioned by ${by}; new events go into partition ${current}`
            : `the log was already partitioned; new partitions cover a ${by}`,
        );
        if (converted) output.line(output.paint.dim(idsChange));
      });
      if (conversion.interrupted && stoppedBy)
        endInterrupted(context, stoppedBy, 'nothing was changed', 'run the same command again');
    });
}

function addRotate(partitions: Command, terminal: Terminal): void {
  partitions
    .command('rotate')
    .summary('open the next partition now')
    .description(
      'Open the next partition now, and create spare partitions that are missing. Relays do this when the day or month is over. Exit code 1 if a partition could not be created or opened.',
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
        if (waiting)
          output.line('the next partition opens when all transactions that began before its creation have ended');
        if (created.length > 0) output.line(`created: ${created.join(', ')}`);
        if (error)
          output.line(
            `${output.paint.red('not created:')} ${printable(output.repeatFlags(error.message))} [${error.code}]`,
          );
      });
      if (rotation.error || rotation.waiting) throw new ExitWith(exitCodes.failed);
    });
}

function addDrop(partitions: Command, terminal: Terminal): void {
  partitions
    .command('drop')
    .summary('drop a partition now')
    .description(
      'Drop a closed partition now, whatever its age. Its events and their delivery records are deleted. Fails while the partition has undelivered events. Unresolved dead letters are kept. Relays drop partitions that are older than keepEventsMs.',
    )
    .argument('<number>', 'number of the partition, see `postcommit partitions`', wholeNumber(0, 9_000_000))
    .option('--yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      examples(['the oldest partition', 'partitions drop 0'], ['from a script', 'partitions drop 12 --yes --json']),
    )
    .action(async (number: number, { yes = false }: { yes?: boolean }, command: Command) => {
      const context = contextOf(command, terminal);
      const { output } = context;
      await confirm(context, `Drop partition ${number} and delete all of its events?`, yes);
      const result = await withAdmin(context, (admin) => admin.partitions.drop(number));
      output.show(result, () => {
        const kept = result.deadLetters > 0 ? `; kept ${quantity(result.deadLetters, 'unresolved dead letter')}` : '';
        output.line(`${output.paint.green('dropped')} partition ${number}${kept}`);
      });
    });
}

function printPartitions(output: Output, { unit, partitions, bytes, default: rest }: Partitioning): void {
  if (unit === 'none') {
    output.line(`the log is one table: ${size(bytes)} with the delivery record`);
    output.line(output.paint.dim(output.repeatFlags('to partition it: npx postcommit partitions convert --by day')));
    return;
  }
  output.line(`the log is partitioned by ${unit}: ${size(bytes)} with the delivery record`);
  output.table(
    ['NUMBER', 'STATE', 'OPENED', 'CLOSED', 'EVENTS', 'SIZE', 'UNDELIVERED', 'DEAD LETTERS'],
    partitions.map(rowOf),
  );
  const withUnqueued = partitions.filter(({ unqueued }) => unqueued > 0).map(({ number }) => number);
  if (withUnqueued.length > 0) {
    const which = `partition ${withUnqueued.join(', ')}`;
    output.line(
      output.paint.red(
        output.repeatFlags(`${which}: some events were never queued; to queue them: npx postcommit requeue-unqueued`),
      ),
    );
  }
  if (rest && rest.events !== 0) {
    const events = rest.events === null ? 'some events' : `about ${quantity(rest.events, 'event')}`;
    output.line(`default partition: ${events}, ${size(rest.bytes)}; retention deletes these row by row`);
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
