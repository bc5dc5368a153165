import type { Command } from 'commander';
import { wholeNumber } from '../arguments.ts';
import { examples } from '../context.ts';
import { dashboardOption, portOf } from '../dashboard-flags.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import type { GlobalOptions } from '../settings.ts';

interface DemoFlags {
  seconds?: number;
  dashboard?: number | true;
}

export function addDemo(program: Command): void {
  program
    .command('demo')
    .summary('run a demo with a crash and a recovery')
    .description(
      'Run a small order service and two relays on an embedded PostgreSQL, kill one relay, and check at the end that no event was lost. The demo removes everything that it created. With --database-url it uses that server instead; it ignores DATABASE_URL and the config file.',
    )
    .option(
      '--seconds <n>',
      'how long the order service runs (default: 20, with --dashboard 120)',
      wholeNumber(1, 3_600),
    )
    .addOption(dashboardOption())
    .addHelpText(
      'after',
      examples(
        ['20 seconds', 'demo'],
        ['two minutes, with a dashboard to look at', 'demo --dashboard'],
        ['10 seconds, with a JSON object at the end', 'demo --seconds 10 --json'],
      ),
    )
    .action(async (_options: unknown, command: Command) => {
      const { seconds, json, databaseUrl, dashboard } = command.optsWithGlobals<GlobalOptions & DemoFlags>();
      const dashboardPort = portOf(dashboard);
      const { runDemo } = await import('../../demo/demo.ts');
      const exitCode = await runDemo({
        seconds: seconds ?? (dashboardPort === undefined ? 20 : 120),
        json: json ?? false,
        ...(dashboardPort !== undefined && { dashboardPort }),
        ...(databaseUrl === undefined ? {} : { databaseUrl }),
      });
      if (exitCode !== exitCodes.ok) throw new ExitWith(exitCode);
    });
}
