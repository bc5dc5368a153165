import type { Command } from 'commander';
import { PostcommitError } from '../../errors.ts';
import { exitCodeOfSignal, StopSignals } from '../../process/stop-signals.ts';
import { wholeNumber } from '../arguments.ts';
import { contextOf, examples } from '../context.ts';
import type { DashboardFlags } from '../dashboard-flags.ts';
import { addDashboardOptions, startDashboard } from '../dashboard-flags.ts';
import { ExitWith } from '../exit-codes.ts';
import type { Terminal } from '../terminal.ts';

export function addDashboard(program: Command, terminal: Terminal): void {
  const command = program
    .command('dashboard')
    .summary('serve a dashboard for the browser')
    .description(
      'Serve a dashboard until SIGTERM or SIGINT: the state of the outbox, events, dead letters, and what operators can do. On loopback it needs no token. On any other address it needs a token of at least 16 characters and refuses to start without one: POSTCOMMIT_DASHBOARD_TOKEN for operators, POSTCOMMIT_DASHBOARD_READ_ONLY_TOKEN for read-only access.',
    )
    .option('--port <n>', 'port to listen on, 0 for any free one (default: 4400)', wholeNumber(0, 65_535))
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)');
  addDashboardOptions(command)
    .addHelpText(
      'after',
      examples(
        ['on this machine', 'dashboard'],
        ['for others, who can only look', 'dashboard --host 0.0.0.0 --read-only'],
        ['behind a proxy that terminates TLS', 'dashboard --trusted-proxies 1'],
        ['hide what is personal', "dashboard --redact customer.email --redact '**.password'"],
      ),
    )
    .action(async (flags: DashboardFlags, self: Command) => {
      const { settings, output } = contextOf(self, terminal);
      const signals = new StopSignals();
      try {
        const server = await startDashboard(settings, terminal, flags).catch(nameFlag);
        output.show({ url: server.url }, () => output.line(`dashboard: ${server.url}`));
        const signal = await signals.first;
        await server.stop();
        if (signal === 'SIGHUP') throw new ExitWith(exitCodeOfSignal(signal));
      } finally {
        signals.close();
      }
    });
}

/** The error of a port that is taken names the flag that chooses another one. */
function nameFlag(error: unknown): never {
  if (!(error instanceof PostcommitError) || (error.cause as NodeJS.ErrnoException | undefined)?.code !== 'EADDRINUSE')
    throw error;
  throw new PostcommitError(error.code, `${error.detail} --port 0 takes a free one.`, {
    cause: error,
  });
}
