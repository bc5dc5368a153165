import type { Command } from 'commander';
import { wholeNumber } from '../arguments.ts';
import { examples } from '../context.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import type { GlobalOptions } from '../settings.ts';

export function addDemo(program: Command): void {
  program
    .command('demo')
    .summary('run a demo with a crash and a recovery')
    .description(
      'Run a small order service and two relays on an embedded PostgreSQL, kill one relay, and check at the end that no event was lost. The demo removes everything that it created. With --database-url it uses that server instead; it ignores DATABASE_URL and the config file.',
    )
    .option('--seconds <n>', 'how long the order service runs', wholeNumber(1, 3_600), 20)
    .addHelpText(
      'after',
      examples(['20 seconds', 'demo'], ['10 seconds, with a JSON object at the end', 'demo --seconds 10 --json']),
    )
    .action(async (_options: unknown, command: Command) => {
      const { seconds, json, databaseUrl } = command.optsWithGlobals<GlobalOptions & { seconds: number }>();
      const { runDemo } = await import('../../demo/demo.ts');
      const exitCode = await runDemo({
        seconds,
        json: json ?? false,
        ...(databaseUrl === undefined ? {} : { databaseUrl }),
      });
      if (exitCode !== exitCodes.ok) throw new ExitWith(exitCode);
    });
}
