import type { Command } from 'commander';
import { wholeNumber } from '../arguments.ts';
import { examples } from '../context.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import type { GlobalOptions } from '../settings.ts';

export function addDemo(program: Command): void {
  program
    .command('demo')
    .summary('watch it work, crash and recover')
    .description(
      'Run a small order service, two relays and a crash on an embedded PostgreSQL, live in the terminal, and prove at the end that nothing was lost. It leaves nothing behind. With --database-url it uses that server instead; DATABASE_URL and the config file are not looked at.',
    )
    .option('--seconds <n>', 'how long orders are made', wholeNumber(1, 3_600), 20)
    .addHelpText(
      'after',
      examples(['twenty seconds', 'demo'], ['shorter, and one JSON object at the end', 'demo --seconds 10 --json']),
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
