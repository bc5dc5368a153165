import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { AlertThresholds } from '../../alerts/rules.ts';
import { alertRules, resolveThresholds, ruleFile } from '../../alerts/rules.ts';
import { quantity } from '../../format.ts';
import { wholeNumber } from '../arguments.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

const anyNumber = wholeNumber(0, 999_999_999_999);

export function addAlerts(program: Command, terminal: Terminal): void {
  program
    .command('alerts')
    .summary('write alert rules for Prometheus')
    .description(
      'Write a rule file for Prometheus with alerts about the outbox. Thresholds come from the flags, then from `alerts` of the config file, then from the defaults. This command does not connect to a database.',
    )
    .option('--out <file>', 'write the rules into this file (default: stdout)')
    .option('--pending-max <n>', 'undelivered events (default: 1000)', anyNumber)
    .option('--oldest-pending-ms-max <n>', 'for how long an event may have been due (default: 300000)', anyNumber)
    .option('--processing-ms-max <n>', '99th percentile of one attempt (default: 30000)', anyNumber)
    .option('--dead-letters-max <n>', 'dead letters that are tolerated (default: 0)', anyNumber)
    .option('--slot-bytes-max <n>', 'WAL that a replication slot may retain (default: 5 GiB)', anyNumber)
    .option('--selector <matchers>', 'label matchers for every metric, where Prometheus watches several outboxes')
    .option('--runbook-url <url>', 'where the runbooks are (default: node_modules/postcommit/docs/runbooks)')
    .addHelpText(
      'after',
      examples(
        ['write the rules into a file', 'alerts --out postcommit.rules.yml'],
        ['for one of several outboxes', `alerts --selector 'job="orders-relay"' --pending-max 5000`],
      ),
    )
    .action(async (flags: AlertThresholds & { out?: string }, command: Command) => {
      const { output, settings } = contextOf(command, terminal);
      const { out, ...overrides } = flags;
      const config = await settings.wholeFile();
      const thresholds = resolveThresholds({ ...config?.config.alerts, ...overrides });
      const rules = ruleFile(thresholds);
      if (out === undefined) {
        output.show({ rules }, () => terminal.stdout.write(rules));
        return;
      }
      const file = resolve(terminal.cwd, out);
      await writeFile(file, rules);
      const alerts = alertRules(thresholds).map(({ alert }) => alert);
      output.show({ file, alerts }, () =>
        terminal.stdout.write(`wrote ${quantity(alerts.length, 'alert')} to ${file}\n`),
      );
    });
}
