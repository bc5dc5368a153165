import type { Command } from 'commander';
import type { GrantsOptions } from '../../database/grants.ts';
import { grantsSql } from '../../database/grants.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addGrants(program: Command, terminal: Terminal): void {
  program
    .command('grants')
    .summary('print the minimum privileges of each database role, as SQL')
    .description(
      'Print the minimum privileges that each database role needs, as SQL. Run it as the owner of the tables, again after every migration. This command does not connect to a database. Without a role option, the roles are postcommit_emitter, postcommit_relay, postcommit_reader and postcommit_consumer.',
    )
    .option('--emitter <role>', 'role that may only insert events')
    .option('--relay <role>', 'role that relays and operators use')
    .option('--reader <role>', 'role that may only read, for dashboards and `postcommit status`')
    .option('--consumer <role>', 'role that may use the inbox, processed_events')
    .option('--create', 'create roles that do not exist')
    .addHelpText(
      'after',
      examples(
        ['for a service and its relay', 'grants --emitter shop --relay shop_relay'],
        ['create the roles and apply the grants', 'grants --create | psql "$DATABASE_URL"'],
        ['for another schema', 'grants --schema billing_outbox --reader bi'],
      ),
    )
    .action(async (options: Omit<GrantsOptions, 'schema'>, command: Command) => {
      const { output, settings } = contextOf(command, terminal);
      const schema = await settings.schema();
      const sql = grantsSql({ schema, ...options });
      output.show({ schema, sql }, () => terminal.stdout.write(sql));
    });
}
