import type { Command } from 'commander';
import type { GrantsOptions } from '../../database/grants.ts';
import { grantsSql } from '../../database/grants.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addGrants(program: Command, terminal: Terminal): void {
  program
    .command('grants')
    .summary('print the least rights that each database role needs, as SQL')
    .description(
      'Print the least rights that each database role needs, as SQL for the owner of the tables to run, once and again after every migration. Needs no database. If you name no role, the defaults are postcommit_emitter, postcommit_relay, postcommit_reader and postcommit_consumer.',
    )
    .option('--emitter <role>', 'the role that may insert events, and nothing else')
    .option('--relay <role>', 'the role that relays and operators use')
    .option('--reader <role>', 'the role that may read everything, for dashboards and `postcommit status`')
    .option('--consumer <role>', 'the role that may use the inbox, processed_events')
    .option('--create', 'create the roles that do not exist yet')
    .addHelpText(
      'after',
      examples(
        ['for a service and its relay', 'grants --emitter shop --relay shop_relay'],
        ['create the roles too, and apply', 'grants --create | psql "$DATABASE_URL"'],
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
