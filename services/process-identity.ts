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

interface Status {
  ended: boolean;
  groupId: number;
  startedAt: string;
}

async function readStatus(pid: number): Promise<Status | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  // After the name, which may itself hold blanks and brackets: state, parent, group, …, and as the 20th the start.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return { ended: 'ZX'.includes(fields[0] ?? 'X'), groupId: Number(fields[2]), startedAt: fields[19] ?? '' };
}
