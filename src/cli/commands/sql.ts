import type { Command } from 'commander';
import { Option } from 'commander';
import type { PartitionChoice } from '../../database/migrate.ts';
import { migrationSql, partitionChoices } from '../../database/migrate.ts';
import { wholeNumber } from '../arguments.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addSql(program: Command, terminal: Terminal): void {
  program
    .command('sql')
    .summary('print the migrations as SQL')
    .description(
      'Print the migrations as SQL, for teams that apply them with a tool of their own. Needs no database; the SQL keeps the same books as `postcommit migrate`, so the two can be mixed.',
    )
    .option('--after <version>', 'leave out the migrations up to this version', wholeNumber(0, 9_999))
    .addOption(
      new Option('--partitions <unit>', 'how a new outbox keeps its log').choices(partitionChoices).default('none'),
    )
    .addHelpText(
      'after',
      examples(
        ['everything, as one transaction', 'sql > outbox.sql'],
        ['only what came after version 1', 'sql --after 1'],
        ['for another schema', 'sql --schema billing_outbox | psql "$DATABASE_URL"'],
      ),
    )
    .action(async (options: { after?: number; partitions: PartitionChoice }, command: Command) => {
      const { output, settings } = contextOf(command, terminal);
      const schema = await settings.schema();
      const sql = migrationSql({ schema, ...options });
      output.show({ schema, sql }, () => terminal.stdout.write(sql));
    });
}
