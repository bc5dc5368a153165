import { PassThrough, Writable } from 'node:stream';
import { expect } from 'vitest';
import { runCli } from '../../src/cli/program.ts';
import type { Terminal } from '../../src/cli/terminal.ts';
import { projectFolder } from './run-cli.ts';

export interface FakeTerminalOptions {
  cwd?: string;
  env?: Record<string, string>;
  /** What a person types. Given, stdin is a terminal. */
  typed?: string;
  /** Whether stderr is a terminal, where progress is shown. */
  tty?: boolean;
}

/** A terminal in memory, for what needs no process of its own. */
export function fakeTerminal({ cwd, env = {}, typed, tty = false }: FakeTerminalOptions = {}) {
  const written = { stdout: '', stderr: '' };
  const sink = (name: keyof typeof written) =>
    new Writable({
      write(chunk, _encoding, done) {
        written[name] += String(chunk);
        done();
      },
    });
  const stdin: Terminal['stdin'] = new PassThrough();
  if (typed !== undefined) (stdin as PassThrough).end(typed);
  stdin.isTTY = typed !== undefined;
  const terminal: Terminal = {
    stdin,
    stdout: sink('stdout'),
    stderr: Object.assign(sink('stderr'), { isTTY: tty }),
    env,
    cwd: cwd ?? projectFolder({}),
  };
  return { terminal, written };
}

export async function runHere(args: string[], options: FakeTerminalOptions = {}) {
  const { terminal, written } = fakeTerminal(options);
  const code = await runCli(args, terminal);
  return { code, ...written };
}

/** Commands for one database: `here` returns what a command wrote, `json` what it answered with --json. */
export function operatorOf(databaseUrl: () => string) {
  const here = (...args: string[]) => runHere(args, { env: { DATABASE_URL: databaseUrl() } });
  // biome-ignore lint/suspicious/noExplicitAny: a test knows the fields of the answer it asked for.
  const json = async (...args: string[]): Promise<any> => {
    const result = await here(...args, '--json');
    expect(result, result.stderr).toMatchObject({ code: 0, stderr: '' });
    return JSON.parse(result.stdout);
  };
  return { here, json };
}
