import type { Command } from 'commander';
import { Option } from 'commander';
import { migrationSql } from '../../database/migrate.ts';
import type { PartitionChoice } from '../../database/migrate-options.ts';
import { partitionChoices } from '../../database/migrate-options.ts';
import { wholeNumber } from '../arguments.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';
import { inboxOnlyHelp, noNotifyTriggerHelp, notifyTriggerHelp } from './migrate.ts';

interface SqlFlags {
  after?: number;
  inboxOnly?: boolean;
  partitions: PartitionChoice;
  notifyTrigger?: boolean;
}

export function addSql(program: Command, terminal: Terminal): void {
  program
    .command('sql')
    .summary('print the migrations and routines as SQL')
    .description(
      'Print the migrations and the SQL functions of the outbox, for teams that apply them with a tool of their own. Needs no database. The SQL records what was applied as `postcommit migrate` does, so the two can be mixed.',
    )
    .option(
      '--after <version>',
      'leave out the migrations up to this version; functions are always printed',
      wholeNumber(0, 9_999),
    )
    .option('--inbox-only', inboxOnlyHelp)
    .addOption(
      new Option('--partitions <unit>', 'how a new outbox keeps its log').choices(partitionChoices).default('none'),
    )
    .option('--notify-trigger', notifyTriggerHelp)
    .option('--no-notify-trigger', noNotifyTriggerHelp)
    .addHelpText(
      'after',
      examples(
        ['everything, as one transaction', 'sql > outbox.sql'],
        ['only what came after version 1', 'sql --after 1'],
        ['for another schema', 'sql --schema billing_outbox | psql "$DATABASE_URL"'],
      ),
    )
    .action(async (options: SqlFlags, command: Command) => {
      const { output, settings } = contextOf(command, terminal);
      const schema = await settings.schema();
      const sql = migrationSql({ schema, ...options });
      output.show({ schema, sql }, () => terminal.stdout.write(sql));
    });
}
