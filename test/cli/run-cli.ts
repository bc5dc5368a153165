import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { builtModule } from '../../scripts/built-package.ts';
import { within } from '../support/wait.ts';

export interface CliResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface CliOptions {
  cwd?: string;
  env?: Record<string, string>;
  timeoutMs?: number;
  /** File descriptors in place of the pipes. */
  stdout?: number;
  stderr?: number;
}

/** Runs the command line as users do, in a process of its own, and waits until it has ended. */
export async function runCli(args: string[], options: CliOptions = {}): Promise<CliResult> {
  const child = spawnCli(args, options);
  const result: CliResult = { code: null, stdout: '', stderr: '' };
  child.stdout?.setEncoding('utf8').on('data', (text) => {
    result.stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text) => {
    result.stderr += text;
  });
  const ended = new Promise<CliResult>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ ...result, code }));
  });
  try {
    return await within(ended, { timeoutMs: options.timeoutMs ?? 30_000, what: `postcommit ${args.join(' ')} ended` });
  } finally {
    child.kill('SIGKILL');
  }
}

/** The same without waiting. Nothing of this process's own settings reaches it. */
export function spawnCli(args: string[], { cwd, env = {}, stdout, stderr }: CliOptions = {}): ChildProcess {
  const { PATH = '', HOME = '' } = process.env;
  return spawn(process.execPath, [builtModule('cli/main.js'), ...args], {
    cwd: cwd ?? tmpdir(),
    env: { PATH, HOME, ...env },
    stdio: ['ignore', stdout ?? 'pipe', stderr ?? 'pipe'],
  });
}

/** A folder with these files and a package.json, so that no config file above it counts. Gone after the test. */
export function projectFolder(files: Record<string, string>): string {
  const { folder, remove } = makeProjectFolder(files);
  onTestFinished(remove);
  return folder;
}

/** The same for a whole file of tests: `remove` is theirs to call. */
export function makeProjectFolder(files: Record<string, string>): { folder: string; remove: () => void } {
  const folder = mkdtempSync(join(tmpdir(), 'postcommit-cli-'));
  for (const [name, text] of Object.entries({ 'package.json': '{"type":"module"}', ...files })) {
    writeFileSync(join(folder, name), text);
  }
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** The error that --json wrote to stderr, which must be all it wrote. */
export function jsonError({ stderr }: CliResult): { code: string; message: string } {
  return (JSON.parse(stderr) as { error: { code: string; message: string } }).error;
}
