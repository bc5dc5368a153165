import { spawn } from 'node:child_process';
import { dirname, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { deferred, until, within } from './wait.ts';

const projectRoot = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const messagesMax = 100_000;
const stderrCharactersMax = 65_536;

/** One JSON line of the child's standard output. */
// biome-ignore lint/suspicious/noExplicitAny: every script has its own messages, and a test reads just a field or two.
export type ChildMessage = any;

export interface Child {
  readonly pid: number;
  /** All messages so far, oldest first. */
  readonly messages: readonly ChildMessage[];
  /**
   * The first message that fits and was not returned by next() before. Fails, with the child's stderr, when none comes
   * in time or the child has ended. Default 20 s: starting Node with tsx takes a while on a busy machine.
   */
  next(fits?: (message: ChildMessage) => boolean, timeoutMs?: number): Promise<ChildMessage>;
  kill(signal?: NodeJS.Signals): void;
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  stderr(): string;
}

/** Runs a TypeScript file in a process of its own, which can then be killed. Path relative to the project's root. */
export function startChild(scriptPath: string, args: string[] = [], env: Record<string, string> = {}): Child {
  const child = spawn(process.execPath, ['--import', 'tsx', resolve(projectRoot, scriptPath), ...args], {
    cwd: projectRoot,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  // A test that fails half-way must not leave it running.
  const killWithParent = () => child.kill('SIGKILL');
  process.once('exit', killWithParent);

  const messages: ChildMessage[] = [];
  const taken = new WeakSet<object>();
  let stderr = '';
  let ended = false;
  const keepText = (text: string) => {
    stderr = (stderr + text).slice(-stderrCharactersMax);
  };
  child.stderr.setEncoding('utf8').on('data', keepText);
  createInterface({ input: child.stdout }).on('line', (line) => {
    const message = parseObject(line);
    if (message === undefined) keepText(`${line}\n`);
    else if (messages.length < messagesMax) messages.push(message);
    else child.kill('SIGKILL');
  });

  const exited = deferred<{ code: number | null; signal: NodeJS.Signals | null }>();
  child.once('error', (error) => {
    ended = true;
    exited.reject(error);
  });
  // 'close' rather than 'exit': by then its last lines have been read.
  child.once('close', (code, signal) => {
    ended = true;
    process.removeListener('exit', killWithParent);
    exited.resolve({ code, signal });
  });

  return {
    pid: child.pid ?? -1,
    messages,
    async next(fits = () => true, timeoutMs = 20_000) {
      const find = () => messages.find((message) => !taken.has(message) && fits(message));
      await until(() => find() !== undefined || ended, { timeoutMs, what: `${scriptPath} sent the message` }).catch(
        (cause) => {
          throw new Error(`${cause.message}; it wrote:\n${stderr}`, { cause });
        },
      );
      const message = find();
      if (message === undefined) throw new Error(`${scriptPath} ended without the message; it wrote:\n${stderr}`);
      taken.add(message);
      return message;
    },
    kill: (signal = 'SIGTERM') => void child.kill(signal),
    exited: exited.promise,
    stderr: () => stderr,
  };
}

/** Kills it if it still runs, and waits until it is gone. */
export async function endChild(child: Child): Promise<void> {
  child.kill('SIGKILL');
  await within(child.exited, { what: `process ${child.pid} ended` });
}

function parseObject(line: string): object | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
