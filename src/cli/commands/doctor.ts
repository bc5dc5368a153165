import type { Command } from 'commander';
import { InvalidArgumentError } from 'commander';
import type { CheckName } from '../../admin/doctor/checks.ts';
import { checkNames } from '../../admin/doctor/checks.ts';
import type { Diagnosis, Finding } from '../../admin/doctor/doctor.ts';
import type { DoctorLimits } from '../../admin/doctor/limits.ts';
import { quantity } from '../../format.ts';
import { suggest } from '../../suggest.ts';
import { wholeNumber } from '../arguments.ts';
import { contextOf, examples, withAdmin } from '../context.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import type { Output } from '../output.ts';
import { printable } from '../output.ts';
import type { Terminal } from '../terminal.ts';

/** Each limit has the flag of its name: `--snapshot-ms-max` for `snapshotMsMax`. */
interface DoctorFlags extends Partial<DoctorLimits> {
  only?: CheckName[];
  production?: boolean;
}

const anyNumber = wholeNumber(0, 999_999_999_999);

export function addDoctor(program: Command, terminal: Terminal): void {
  program
    .command('doctor')
    .summary('find problems, their consequences, and the command that fixes each')
    .description(
      `Check the outbox and its PostgreSQL server and print every problem, worst first, with its consequence and the command that fixes it. Changes nothing. A value over a limit is a warning, over ten times the limit it is critical. Exit code 1 for warnings, 5 for critical findings, 4 if the tables do not match this version. Checks: ${checkNames.join(', ')}.`,
    )
    .option('--only <checks>', 'run only these checks, separated by commas', checksArgument)
    .option('--production', 'also check the production-checklist points visible from the database')
    .option('--oldest-pending-ms-max <n>', 'warn when an event has been due for longer (default: 300000)', anyNumber)
    .option('--snapshot-ms-max <n>', 'warn when a session holds a snapshot for longer (default: 300000)', anyNumber)
    .option('--lock-ms-max <n>', 'warn when a session holds an advisory lock for longer (default: 60000)', anyNumber)
    .option('--dead-rows-max <n>', 'warn when the queue has more dead rows (default: 100000)', anyNumber)
    .option('--slot-bytes-max <n>', 'warn when a replication slot keeps more WAL (default: 1073741824)', anyNumber)
    .addHelpText(
      'after',
      examples(
        ['check everything', 'doctor'],
        ['ready for production? with the role of the relay', 'doctor --production'],
        ['what keeps vacuum from cleaning the queue?', 'doctor --only snapshots,bloat --snapshot-ms-max 10000'],
        ['critical findings, for a monitor', 'doctor --json | jq \'.findings[] | select(.severity == "critical")\''],
      ),
    )
    .action(async ({ only, production = false, ...limits }: DoctorFlags, command: Command) => {
      const context = contextOf(command, terminal);
      const [connection, schema] = [await context.settings.connection(), await context.settings.schema()];
      const diagnosis = await withAdmin(context, (admin) =>
        admin.doctor({ ...connection, limits, production, ...(only && { only }) }),
      );
      context.output.show({ schema, ...diagnosis }, () => print(context.output, schema, diagnosis));
      const exitCode = exitCodeFor(diagnosis);
      if (exitCode !== exitCodes.ok) throw new ExitWith(exitCode);
    });
}

function checksArgument(text: string): CheckName[] {
  return text.split(',').map((part) => {
    const name = checkNames.find((each) => each === part.trim());
    if (name !== undefined) return name;
    const meant = suggest(part.trim(), checkNames);
    throw new InvalidArgumentError(meant ? `Did you mean ${meant}?` : `Valid checks: ${checkNames.join(', ')}.`);
  });
}

function exitCodeFor({ worst, findings }: Diagnosis): number {
  if (worst !== 'critical') return worst === 'warning' ? exitCodes.failed : exitCodes.ok;
  const notMigrated = findings.some(({ check, severity }) => check === 'migrations' && severity === 'critical');
  return notMigrated ? exitCodes.notMigrated : exitCodes.critical;
}

function print(output: Output, schema: string, { findings }: Diagnosis): void {
  const { paint } = output;
  const colour = { critical: paint.red, warning: paint.yellow, note: paint.cyan, ok: paint.green };
  output.line(paint.bold(`outbox in schema ${printable(schema)}`));
  for (const { check, severity, what, consequence, fix } of findings.filter(({ severity }) => severity !== 'ok')) {
    output.line();
    output.line(`${colour[severity](severity)}  ${paint.bold(check)}: ${printable(what)}`);
    if (consequence) output.line(`  ${printable(consequence)}`);
    if (fix) output.line(`  ${paint.dim('fix:')} ${printable(output.repeatFlags(fix))}`);
  }
  output.line();
  for (const { check, what } of findings.filter(({ severity }) => severity === 'ok')) {
    output.line(`${paint.green('ok')}  ${check}: ${printable(what)}`);
  }
  output.line();
  output.line(summary(findings, output));
}

function summary(findings: readonly Finding[], { paint }: Output): string {
  const how = (severity: Finding['severity']) => findings.filter((each) => each.severity === severity).length;
  const parts = [
    how('critical') > 0 && paint.red(`${how('critical')} critical`),
    how('warning') > 0 && paint.yellow(quantity(how('warning'), 'warning')),
    how('note') > 0 && quantity(how('note'), 'note'),
  ].filter((part) => part !== false);
  return parts.length > 0 ? parts.join(', ') : paint.green('no problems found');
}
