import type { Command } from 'commander';
import { Option } from 'commander';
import { dropOutboxSql, migrationSql } from '../../database/migrate.ts';
import type { PartitionChoice } from '../../database/migrate-options.ts';
import { partitionChoices } from '../../database/migrate-options.ts';
import { PostcommitError } from '../../errors.ts';
import { wholeNumber } from '../arguments.ts';
import { contextOf, examples } from '../context.ts';
import type { Language } from '../migration-files/migration-file.ts';
import { languages } from '../migration-files/migration-file.ts';
import type { ToolName } from '../migration-files/tools.ts';
import { toolNames } from '../migration-files/tools.ts';
import { writeMigrationFiles } from '../migration-files/write-files.ts';
import type { Terminal } from '../terminal.ts';
import { inboxOnlyHelp, noNotifyTriggerHelp, notifyTriggerHelp } from './migrate.ts';

interface SqlFlags {
  after?: number;
  inboxOnly?: boolean;
  partitions: PartitionChoice;
  notifyTrigger?: boolean;
  for?: ToolName;
  output?: string;
  language?: Language;
}

export function addSql(program: Command, terminal: Terminal): void {
  program
    .command('sql')
    .summary('print the migrations and routines as SQL, or write them for a migration tool')
    .description(
      'Print the migrations and the SQL functions of the outbox, for teams that apply them with a tool of their own. Needs no database. The SQL records what was applied as `postcommit migrate` does, so the two can be mixed. With --for, write them as a migration of that tool instead.',
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
    .addOption(new Option('--for <tool>', 'write a migration file for this tool').choices(toolNames))
    .option('--output <folder>', "with --for: the folder of the tool's migrations (default: the tool's own)")
    .addOption(
      new Option(
        '--language <language>',
        'with --for: language of the file, for tools whose migrations are code (default: ts with a tsconfig.json, else as in package.json)',
      ).choices(languages),
    )
    .addHelpText(
      'after',
      examples(
        ['everything, as one transaction', 'sql > outbox.sql'],
        ['only what came after version 1', 'sql --after 1'],
        ['for another schema', 'sql --schema billing_outbox | psql "$DATABASE_URL"'],
        ['as a migration of Prisma', 'sql --for prisma'],
        ['as a migration of Knex, in another folder', 'sql --for knex --output db/migrations'],
      ),
    )
    .action(async (options: SqlFlags, command: Command) => {
      const { output, settings } = contextOf(command, terminal);
      const { for: tool, output: folder, language, ...choices } = options;
      if (tool === undefined && (folder ?? language) !== undefined) {
        throw new PostcommitError('POSTCOMMIT_E_USAGE', `--${folder ? 'output' : 'language'} needs --for <tool>.`);
      }
      const schema = await settings.schema();
      const sql = migrationSql({ schema, ...choices });
      if (tool === undefined) {
        output.show({ schema, sql }, () => terminal.stdout.write(sql));
        return;
      }
      const migration = {
        up: migrationSql({ schema, ...choices, ownTransaction: false }),
        upAlone: sql,
        down: choices.after ? undefined : dropOutboxSql(schema),
      };
      const files = writeMigrationFiles(tool, migration, { cwd: terminal.cwd, output: folder, language });
      output.show({ schema, files }, () => {
        for (const file of files) output.line(`${output.paint.green('wrote')} ${file}`);
      });
    });
}
