import type { Command } from 'commander';
import type { OutboxAdmin } from '../admin/admin.ts';
import { openPool } from '../database/pool.ts';
import { fromPg } from '../emit/from-pg.ts';
import { createOutbox } from '../emit/outbox.ts';
import { Output } from './output.ts';
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
  return { terminal, output: new Output(terminal, options.json ?? false), settings: new Settings(options, terminal) };
}

/** Runs `work` on the outbox that the settings name, and closes the connections whatever comes of it. */
export async function withAdmin<T>(
  { settings }: Context,
  work: (admin: OutboxAdmin) => Promise<T>,
  { queryTimeoutMs }: { queryTimeoutMs?: number } = {},
): Promise<T> {
  const [connection, schema] = [await settings.connection(), await settings.schema()];
  const pool = await openPool(connection, 'postcommit cli', queryTimeoutMs);
  try {
    return await work(createOutbox({ db: fromPg(pool), schema }).admin);
  } finally {
    // Not awaited: to a peer that is silent a goodbye takes for ever, and the process ends anyhow.
    pool.end().catch(() => {});
  }
}

/** The examples below a command's help. */
export function examples(...list: [what: string, command: string][]): string {
  return `\nExamples:\n${list.map(([what, command]) => `  # ${what}\n  postcommit ${command}`).join('\n\n')}\n`;
}
