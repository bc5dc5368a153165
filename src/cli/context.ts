import type { Command } from 'commander';
import { fromPg } from '../adapters/pg.ts';
import type { OutboxAdmin } from '../admin/admin.ts';
import { openPool } from '../database/pool.ts';
import { createOutbox } from '../emit/outbox.ts';
import { Output } from './output.ts';
import { repeatFlags } from './printed-commands.ts';
import type { GlobalOptions } from './settings.ts';
import { Settings } from './settings.ts';
import type { Terminal } from './terminal.ts';

/** What every command works with. */
export interface Context {
  terminal: Terminal;
  output: Output;
  settings: Settings;
}

export function contextOf(command: Command, terminal: Terminal): Context {
  const options = command.optsWithGlobals<GlobalOptions>();
  const output = new Output(terminal, options.json ?? false, repeatFlags(options));
  return { terminal, output, settings: new Settings(options, terminal) };
}

/** Runs `work` on the outbox of the settings and closes the connections afterwards. */
export async function withAdmin<T>(
  { settings }: Context,
  work: (admin: OutboxAdmin) => Promise<T>,
  { queryTimeoutMs }: { queryTimeoutMs?: number } = {},
): Promise<T> {
  const [connection, schema] = [await settings.connection(), await settings.schema()];
  const pool = await openPool(connection, 'postcommit cli', queryTimeoutMs);
  try {
    return await work(createOutbox({ db: fromPg(pool), schema }).admin.as(settings.operator()));
  } finally {
    // Not awaited: closing a connection to an unresponsive server hangs, and the process ends anyway.
    pool.end().catch(() => {});
  }
}

/** The examples section of a command's help. */
export function examples(...list: [what: string, command: string][]): string {
  return `\nExamples:\n${list.map(([what, command]) => `  # ${what}\n  npx postcommit ${command}`).join('\n\n')}\n`;
}
