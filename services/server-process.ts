import { spawn } from 'node:child_process';
import { open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { identify, isGroupRunning, isRunning, type ProcessIdentity } from './process-identity.ts';
import { type Command, type Service, StartFailed } from './service.ts';

const readyTimeoutMs = 120_000;
const readyPollMs = 50;
/** How long a server may take to stop by itself. */
const stopPatienceMs = 30_000;
const endPollMs = 20;
const logCharactersMax = 4_000;

/** Its number is in here before it runs, for whoever has to end it when this process is gone. */
export const pidFile = (folder: string) => join(folder, 'pid');
export const logFile = (folder: string) => join(folder, 'server.log');

/** Starts it in a process group of its own, which does not end with this process. */
export async function spawnServer(command: Command, folder: string): Promise<ProcessIdentity> {
  const log = await open(logFile(folder), 'a');
  try {
    const { PATH = '', HOME = '', LANG = '', TMPDIR = '/tmp' } = process.env;
    const script = 'echo $$ >"$0" && exec "$@"';
    const child = spawn('/bin/sh', ['-c', script, pidFile(folder), command.program, ...command.args], {
      cwd: folder,
      env: { PATH, HOME, LANG, TMPDIR, ...command.env },
      stdio: ['ignore', log.fd, log.fd],
      detached: true,
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', reject);
    });
    child.unref();
    const identity = child.pid === undefined ? undefined : await identify(child.pid);
    if (identity === undefined) throw new StartFailed(await withLog(`${command.program} ended at once`, folder));
    return identity;
  } finally {
    await log.close();
  }
}

/** Resolves with the server's version, where its protocol tells. */
export async function waitUntilReady(
  service: Service,
  server: ProcessIdentity,
  environment: Record<string, string>,
  folder: string,
): Promise<string | undefined> {
  const deadline = Date.now() + readyTimeoutMs;
  for (;;) {
    let problem: string;
    try {
      const version = await service.check(environment);
      // Otherwise somebody else answers on that port.
      if (await isRunning(server)) return version;
      problem = 'another server answers in its place';
    } catch (error) {
      problem = describe(error);
    }
    if (!(await isRunning(server)))
      throw new StartFailed(await withLog(`${service.title} ended while starting`, folder));
    if (Date.now() > deadline) {
      await endServer(server, 'SIGKILL');
      throw new StartFailed(
        await withLog(`${service.title} was not ready after ${readyTimeoutMs} ms: ${problem}`, folder),
      );
    }
    await sleep(readyPollMs);
  }
}

/** Resolves when every process of the group has ended. Does nothing if the number belongs to another process now. */
export async function endServer(server: ProcessIdentity, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  if (!(await isRunning(server))) return;
  signalServer(server, signal);
  let deadline = Date.now() + stopPatienceMs;
  while (await isGroupRunning(server.pid)) {
    if (Date.now() > deadline) {
      signalServer(server, 'SIGKILL');
      deadline = Number.POSITIVE_INFINITY;
    }
    await sleep(endPollMs);
  }
}

export function signalServer(server: ProcessIdentity, signal: NodeJS.Signals): void {
  try {
    process.kill(-server.pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** After endServer(): the number may soon be another process's. */
export async function forgetPid(folder: string): Promise<void> {
  await rm(pidFile(folder), { force: true });
}

export function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // fetch() says only that it failed, and why in its cause. A refused connection may have a code and no message.
  const told = error.message === 'fetch failed' && error.cause instanceof Error ? error.cause : error;
  return told.message || (told as NodeJS.ErrnoException).code || told.name;
}

async function withLog(what: string, folder: string): Promise<string> {
  const log = (await readFile(logFile(folder), 'utf8').catch(() => '')).trim();
  return log ? `${what}. Its log ends:\n${log.slice(-logCharactersMax)}` : `${what}.`;
}
