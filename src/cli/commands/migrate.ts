import type { Command } from 'commander';
import { migrate } from '../../database/migrate.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addMigrate(program: Command, terminal: Terminal): void {
  program
    .command('migrate')
    .summary('create or update the outbox tables')
    .description(
      'Create or update the outbox tables, in one transaction. Safe to run from any number of processes at once, and again at any time.',
    )
    .option('--dry-run', 'only tell what would be applied')
    .addHelpText(
      'after',
      examples(
        ['bring the tables up to date', 'migrate'],
        ['what would it do?', 'migrate --dry-run'],
        [
          'in another schema of another database',
          'migrate --database-url postgres://localhost/app --schema billing_outbox',
        ],
      ),
    )
    .action(async (options: { dryRun?: boolean }, command: Command) => {
      const { output, settings } = contextOf(command, terminal);
      const dryRun = options.dryRun ?? false;
      const result = await migrate({
        connectionString: await settings.connectionString(),
        schema: await settings.schema(),
        dryRun,
      });
      const { schema, applied, version } = result;
      const answer = dryRun ? { schema, version, pending: applied } : { schema, version, applied };
      output.show(answer, () => {
        if (applied.length === 0) {
          output.line(`${output.paint.green('up to date')}: schema ${schema} is at version ${version}`);
          return;
        }
        for (const name of applied) output.line(dryRun ? `would apply ${name}` : `applied ${name}`);
        output.line(
          dryRun
            ? `schema ${schema} is at version ${version}; nothing was changed. \`postcommit sql --after ${version}\` prints the SQL.`
            : `${output.paint.green('done')}: schema ${schema} is at version ${version}`,
        );
      });
    });
}
