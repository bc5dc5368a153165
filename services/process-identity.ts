import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

/** A process, told apart from a later one with the same number. */
export interface ProcessIdentity {
  pid: number;
  /** When it started, as the system tells it. */
  startedAt: string;
}

/** Undefined when there is none. */
export async function identify(pid: number): Promise<ProcessIdentity | undefined> {
  if (process.platform === 'linux') {
    const status = await readStatus(pid);
    return status === undefined || status.ended ? undefined : { pid, startedAt: status.startedAt };
  }
  try {
    const { stdout } = await promisify(execFile)('ps', ['-o', 'lstart=', '-p', String(pid)]);
    return { pid, startedAt: stdout.trim() };
  } catch {
    return undefined;
  }
}

export async function isRunning(process: ProcessIdentity): Promise<boolean> {
  return (await identify(process.pid))?.startedAt === process.startedAt;
}

/** Whether a process of this group is left. */
export async function isGroupRunning(groupId: number): Promise<boolean> {
  try {
    process.kill(-groupId, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  if (process.platform !== 'linux') return true;
  // An ended process that its parent has not noticed still counts for kill(). In a container whose first process
  // collects no children it would count forever.
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const statuses = await Promise.all(pids.map((pid) => readStatus(Number(pid))));
  return statuses.some((status) => status?.groupId === groupId && !status.ended);
}

/** Whether every thread of the group is stopped. Where the system does not tell, it is taken to be so. */
export async function isGroupStopped(groupId: number): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const stopped = await Promise.all(
    pids.map(async (pid) => {
      if ((await readStatus(Number(pid)))?.groupId !== groupId) return true;
      const threads = await readdir(`/proc/${pid}/task`).catch(() => []);
      const states = await Promise.all(threads.map((thread) => readStatus(Number(thread))));
      return states.every((status) => status === undefined || status.ended || status.stopped);
    }),
  );
  return stopped.every(Boolean);
}

interface Status {
  stopped: boolean;
  ended: boolean;
  groupId: number;
  startedAt: string;
}

async function readStatus(pid: number): Promise<Status | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  // After the name, which may itself hold blanks and brackets: state, parent, group, …, and as the 20th the start.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const state = fields[0] ?? 'X';
  return {
    stopped: 'Tt'.includes(state),
    ended: 'ZX'.includes(state),
    groupId: Number(fields[2]),
    startedAt: fields[19] ?? '',
  };
}
