import type { CommanderError } from 'commander';
import { Command } from 'commander';
import { PostcommitError } from '../errors.ts';
import { packageVersion } from '../package-version.ts';
import { didYouMean } from '../suggest.ts';
import { redact } from '../telemetry/redaction.ts';
import { addAlerts } from './commands/alerts.ts';
import { addAudit } from './commands/audit.ts';
import { addCompletion } from './commands/completion.ts';
import { addDashboard } from './commands/dashboard.ts';
import { addDead } from './commands/dead.ts';
import { addDemo } from './commands/demo.ts';
import { addDestinations } from './commands/destinations.ts';
import { addDoctor } from './commands/doctor.ts';
import { addEvents } from './commands/events.ts';
import { addForget } from './commands/forget.ts';
import { addGrants } from './commands/grants.ts';
import { addInit } from './commands/init.ts';
import { addMigrate } from './commands/migrate.ts';
import { addPartitions } from './commands/partitions.ts';
import { addPrune } from './commands/prune.ts';
import { addQueues } from './commands/queues.ts';
import { addRelay } from './commands/relay.ts';
import { addReplay } from './commands/replay.ts';
import { addRequeueUnqueued } from './commands/requeue-unqueued.ts';
import { addSchedules } from './commands/schedules.ts';
import { addSchema } from './commands/schema.ts';
import { addSql } from './commands/sql.ts';
import { addStatus } from './commands/status.ts';
import { examples } from './context.ts';
import { ExitWith, exitCodeOf, exitCodes, exitCodesHelp } from './exit-codes.ts';
import { printable } from './output.ts';
import { type RepeatFlags, repeatFlags } from './printed-commands.ts';
import type { GlobalOptions } from './settings.ts';
import type { Terminal } from './terminal.ts';
import { wantsColour } from './terminal.ts';

/** Defines all commands. Reads and runs nothing before it parses its arguments. */
export function createProgram(terminal: Terminal): Command {
  const program = new Command('postcommit');
  program
    .description('Transactional outbox for Node.js and PostgreSQL.')
    .version(packageVersion(), '--version', 'print the version')
    .option('--config <file>', 'config file (default: postcommit.config.ts|mts|js|mjs|json in this folder or a parent)')
    .option('--database-url <url>', 'database of the outbox (default: DATABASE_URL, then the config file)')
    .option('--schema <name>', 'schema of the outbox (default: POSTCOMMIT_SCHEMA, the config file, "postcommit")')
    .option('--outbox <name>', 'which one, if the config file has several `outboxes`')
    .option(
      '--operator <name>',
      'who changes something, for `postcommit audit` (default: POSTCOMMIT_OPERATOR, your user name on this host)',
    )
    .option('--why <text>', 'why, for `postcommit audit`, and shown with what is paused or cancelled')
    .option('--json', 'write JSON to stdout and errors as JSON to stderr')
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => void terminal.stdout.write(text),
      writeErr: (text) => void (program.opts().json || terminal.stderr.write(text)),
      outputError: () => {}, // reportError prints every error, so that --json and exit codes are the same for all.
      getOutHasColors: () => wantsColour(terminal.stdout, terminal.env),
      getErrHasColors: () => wantsColour(terminal.stderr, terminal.env),
    })
    .addHelpText('after', exitCodesHelp)
    .addHelpText(
      'after',
      examples(
        [
          'write a config file, create the tables, start a relay',
          'init && npx postcommit migrate && npx postcommit relay',
        ],
        ['show backlog, dead letters, destinations and relays', 'status'],
        ['show one event with its history', 'events 0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f'],
      ),
    );
  const setup = [addInit, addMigrate, addSql, addGrants, addSchema, addRelay, addAlerts];
  const operations = [
    addStatus,
    addDoctor,
    addEvents,
    addDead,
    addReplay,
    addRequeueUnqueued,
    addDestinations,
    addQueues,
    addForget,
    addSchedules,
    addPrune,
    addPartitions,
    addAudit,
    addDashboard,
  ];
  for (const add of [...setup, ...operations, addDemo, addCompletion]) add(program, terminal);
  throwInsteadOfExit(program);
  return program;
}

/** Runs one command line and returns its exit code. Never throws. */
export async function runCli(args: readonly string[], terminal: Terminal): Promise<number> {
  const json = args.slice(0, args.includes('--') ? args.indexOf('--') : undefined).includes('--json');
  const program = createProgram(terminal);
  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCodes.ok;
  } catch (error) {
    if (error instanceof ExitWith) return error.exitCode;
    reportError(error, terminal, json, repeatFlags(program.opts<GlobalOptions>()));
    return exitCodeOf(error);
  }
}

function reportError(error: unknown, { stderr, env }: Terminal, json: boolean, repeat: RepeatFlags): void {
  const code = (error as { code?: unknown } | null)?.code;
  const known = typeof code === 'string';
  const text = error instanceof Error ? error.message || String(code ?? error.name) : String(error);
  // A usage error names the command that was run: its flags may be what was wrong.
  const hasOurCommands = error instanceof PostcommitError && code !== 'POSTCOMMIT_E_USAGE';
  const message = redact(hasOurCommands ? repeat(text) : text);
  if (json) {
    stderr.write(`${JSON.stringify({ error: { code: known ? code : 'UNEXPECTED', message } })}\n`);
    return;
  }
  const red = (text: string) => (wantsColour(stderr, env) ? `\x1b[31m${text}\x1b[39m` : text);
  const lines = message.split('\n').map(printable).join('\n');
  stderr.write(`${red('error:')} ${lines}${known ? ` [${code}]` : ''}\n`);
  // An error without a code is a bug: print the stack for the bug report.
  if (!known && error instanceof Error && error.stack) stderr.write(`${redact(error.stack)}\n`);
}

/** Commander calls process.exit(). This makes it throw instead, with the name of the command. */
function throwInsteadOfExit(command: Command): void {
  command.exitOverride((error) => {
    if (error.exitCode === 0) throw new ExitWith(exitCodes.ok);
    throw new PostcommitError('POSTCOMMIT_E_USAGE', usageDetail(command, error));
  });
  for (const child of command.commands) throwInsteadOfExit(child);
}

function usageDetail(command: Command, error: CommanderError): string {
  const path = commandPath(command);
  const names = command.commands.map((each) => each.name());
  if (error.code === 'commander.help') return `A command is missing. Valid commands: ${names.join(', ')}.`;
  if (error.code === 'commander.excessArguments' && command.name() === 'list' && command.parent) {
    // A misspelt command of a noun is an argument of its default command.
    const siblings = command.parent.commands.map((each) => each.name());
    const word = command.args[command.registeredArguments.length] ?? '';
    return `Unknown command '${word}'.${didYouMean(word, siblings)} Valid commands: ${siblings.join(', ')}. See \`npx ${commandPath(command.parent)} --help\`.`;
  }
  const [what = '', suggestion] = error.message.replace(/^error: /, '').split('\n');
  const sentences = [`${what.charAt(0).toUpperCase()}${what.slice(1)}${what.endsWith('.') ? '' : '.'}`];
  if (suggestion) sentences.push(suggestion.replace(/^\(|\)$/g, ''));
  else if (error.code === 'commander.unknownOption')
    sentences.push(`Valid options: ${optionNames(command).join(', ')}.`);
  else if (error.code === 'commander.unknownCommand') sentences.push(`Valid commands: ${names.join(', ')}.`);
  return `${sentences.join(' ')} See \`npx ${path} --help\`.`;
}

function optionNames(command: Command): string[] {
  const own = command.options.map((option) => option.long ?? option.flags);
  return command.parent ? [...own, ...optionNames(command.parent)] : own;
}

function commandPath(command: Command): string {
  return command.parent ? `${commandPath(command.parent)} ${command.name()}` : command.name();
}
