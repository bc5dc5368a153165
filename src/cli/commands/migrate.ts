import type { Command } from 'commander';
import { Option } from 'commander';
import { quoteIdentifier } from '../../database/identifier.ts';
import { migrate } from '../../database/migrate.ts';
import type { PartitionChoice } from '../../database/migrate-options.ts';
import { partitionChoices } from '../../database/migrate-options.ts';
import type { NotifyTriggerChange } from '../../database/notify-trigger.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

/** More than this are only counted: a new outbox has them all. */
const routinesNamedMax = 8;

export const notifyTriggerHelp =
  'install a trigger that wakes relays for every INSERT into the log, from any language; slows concurrent writers (8 writers: about half the throughput)';
export const noNotifyTriggerHelp = 'remove that trigger; without either option it stays as it is';

export const inboxOnlyHelp = 'only the inbox, processed_events: for the database of a consumer that emits nothing';

interface MigrateFlags {
  dryRun?: boolean;
  inboxOnly?: boolean;
  partitions?: PartitionChoice;
  notifyTrigger?: boolean;
}

function notifyTriggerText(change: NotifyTriggerChange, wanted: boolean, dryRun: boolean): string {
  if (change === 'kept') return wanted ? 'every INSERT already notifies relays' : 'there is no trigger to remove';
  const what = 'the trigger outbox_events_notify';
  if (dryRun) return `would ${wanted ? 'install' : 'remove'} ${what}`;
  return wanted ? `installed ${what}: every INSERT notifies relays` : `removed ${what}`;
}

export function addMigrate(program: Command, terminal: Terminal): void {
  program
    .command('migrate')
    .summary('create or update the outbox tables and functions, and repair their sequence')
    .description(
      'Create or update the outbox tables and functions, in one transaction. If the sequence of the log lags behind its events, because logical replication or a blue/green switch copied rows and no sequences, it is moved up. Safe to run from any number of processes at once, and again at any time.',
    )
    .option('--dry-run', 'print what would be applied, change nothing')
    .option('--inbox-only', inboxOnlyHelp)
    .addOption(
      new Option(
        '--partitions <unit>',
        'how a new outbox keeps its log; one that has events is left as it is (default: the config file, "none")',
      ).choices(partitionChoices),
    )
    .option('--notify-trigger', notifyTriggerHelp)
    .option('--no-notify-trigger', noNotifyTriggerHelp)
    .addHelpText(
      'after',
      examples(
        ['bring the tables up to date', 'migrate'],
        ['what would it do?', 'migrate --dry-run'],
        ['on the new server of a blue/green switch, before relays and emitters start there', 'migrate'],
        ['a new outbox for millions of events a day', 'migrate --partitions day'],
        ['wake relays for events of programs in other languages', 'migrate --notify-trigger'],
        [
          'the database of a consumer, without an outbox',
          'migrate --inbox-only --database-url postgres://localhost/mail',
        ],
        [
          'in another schema of another database',
          'migrate --database-url postgres://localhost/app --schema billing_outbox',
        ],
      ),
    )
    .action(async (options: MigrateFlags, command: Command) => {
      const { output, settings } = contextOf(command, terminal);
      const dryRun = options.dryRun ?? false;
      const { inboxOnly = false, notifyTrigger } = options;
      const partitions = options.partitions ?? (inboxOnly ? undefined : await settings.partitions());
      const result = await migrate({
        ...(await settings.connection()),
        schema: await settings.schema(),
        dryRun,
        inboxOnly,
        ...(partitions && { partitions }),
        ...(notifyTrigger !== undefined && { notifyTrigger }),
      });
      const { schema, applied, routines, version, ...kept } = result;
      const answer = {
        schema,
        version,
        ...(dryRun ? { pending: applied, pendingRoutines: routines } : { applied, routines }),
        ...kept,
      };
      const tellKept = () => {
        if (kept.schemaCreators !== undefined) {
          const who = kept.schemaCreators.join(', ');
          output.line(`${output.paint.yellow('warning')}: ${who} may create functions in the schema ${schema}`);
          output.line(output.paint.dim(`to change it: revoke create on schema ${quoteIdentifier(schema)} from ${who}`));
        }
        if (kept.sequenceMovedTo !== undefined) {
          const next = `the next event gets seq ${kept.sequenceMovedTo}`;
          output.line(
            dryRun ? `would move the sequence of the log up: ${next}` : `moved the sequence of the log up: ${next}`,
          );
        }
        if (kept.notifyTrigger !== undefined) {
          output.line(notifyTriggerText(kept.notifyTrigger, notifyTrigger === true, dryRun));
        }
        if (kept.partitions === undefined) return;
        output.line(
          kept.partitions === 'none' ? 'the log is one table' : `the log is partitioned by ${kept.partitions}`,
        );
        if (partitions === 'none' || kept.partitions === partitions) return;
        output.line(
          output.paint.dim(
            output.repeatFlags(`it has had events; to change it: npx postcommit partitions convert --by ${partitions}`),
          ),
        );
      };
      output.show(answer, () => {
        if (applied.length === 0 && routines.length === 0) {
          output.line(`${output.paint.green('up to date')}: schema ${schema} is at version ${version}`);
          tellKept();
          return;
        }
        for (const name of applied) output.line(dryRun ? `would apply ${name}` : `applied ${name}`);
        if (routines.length > 0) {
          const what = routines.length > routinesNamedMax ? `${routines.length} functions` : routines.join(', ');
          output.line(dryRun ? `would create or replace ${what}` : `created or replaced ${what}`);
        }
        output.line(
          dryRun
            ? `schema ${schema} is at version ${version}; nothing was changed. \`${output.repeatFlags('npx postcommit sql')} ${inboxOnly ? '--inbox-only' : `--after ${version}`}\` prints the SQL.`
            : `${output.paint.green('done')}: schema ${schema} is at version ${version}`,
        );
        tellKept();
      });
    });
}
