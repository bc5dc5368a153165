import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** Identifies a process, also after its pid was given to another. `undefined` where there is no /proc, e.g. on macOS. */
export interface HostProcess {
  /** The host, its boot and the pid namespace: the same pid is the same process only where all of these are the same. */
  hostId: string | undefined;
  /** When the process started, in clock ticks since the boot. */
  processId: string | undefined;
}

/** This process. */
export function ownProcess(): HostProcess {
  const hostId = readHostId();
  const processId = hostId && processStat(process.pid)?.startedAt;
  return processId ? { hostId, processId } : { hostId: undefined, processId: undefined };
}

/**
 * Whether a process is known not to exist any more. Only this host can know: its own pid namespace since its last boot. The
 * pid must be free, or belong to a process that started at another time, or to one that has ended and was not waited for.
 */
export function isProcessGone(
  { pid, hostId, processId }: { pid: number; hostId: string | null; processId: string | null },
  ownHostId: string | undefined,
): boolean {
  if (!hostId || !processId || hostId !== ownHostId) return false;
  try {
    process.kill(pid, 0); // Not /proc: with hidepid it hides the processes of other users.
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
  const stat = processStat(pid);
  return stat !== undefined && (stat.startedAt !== processId || stat.state === 'Z' || stat.state === 'X');
}

function readHostId(): string | undefined {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
    const namespace = readlinkSync('/proc/self/ns/pid');
    return boot && `${boot} ${namespace} ${hostname()}`;
  } catch {
    return undefined;
  }
}

function processStat(pid: number): { state: string; startedAt: string } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // After the name in parentheses, which may contain anything: state is the 3rd field, the start time the 22nd.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    const [state, startedAt] = [fields[0], fields[19]];
    return state && startedAt ? { state, startedAt } : undefined;
  } catch {
    return undefined;
  }
}
