import { readdirSync, readFileSync } from 'node:fs';

/** Processor time is counted by the kernel in ticks; this has been 100 a second on Linux for decades. */
const tickMs = 10;

interface ProcessTimes {
  parent: number;
  /** Its own time, and that of children that have ended. */
  ownMs: number;
  childrenMs: number;
}

/**
 * The processor time that a PostgreSQL server on this machine has used so far, all of its processes together; undefined
 * where /proc does not tell (another system, or a server elsewhere). Any of its backends names the server. Backends in
 * `except` do not count; they must not have ended.
 */
export function serverCpuMs(backendPid: number, except: ReadonlySet<number> = new Set()): number | undefined {
  const backend = timesOf(backendPid);
  if (backend === undefined || !isPostgres(backend.parent)) return undefined;
  let sum = 0;
  for (const entry of readdirSync('/proc')) {
    const pid = Number(entry);
    if (!Number.isInteger(pid) || except.has(pid)) continue;
    const times = timesOf(pid);
    if (times?.parent === backend.parent) sum += times.ownMs;
    else if (times && pid === backend.parent) sum += times.ownMs + times.childrenMs;
  }
  return sum;
}

function isPostgres(pid: number): boolean {
  try {
    return /^postgres/.test(readFileSync(`/proc/${pid}/comm`, 'utf8'));
  } catch {
    return false;
  }
}

function timesOf(pid: number): ProcessTimes | undefined {
  try {
    // The name is in brackets and may hold anything; what follows the last one is numbers.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ')
      .map(Number);
    const [, parent = 0] = fields;
    const [user = 0, system = 0, childUser = 0, childSystem = 0] = fields.slice(11, 15);
    return { parent, ownMs: exactMs(pid) ?? (user + system) * tickMs, childrenMs: (childUser + childSystem) * tickMs };
  } catch {
    return undefined; // It has ended since.
  }
}

/** Nanoseconds instead of ticks, where the kernel tells. A PostgreSQL process has one thread. */
function exactMs(pid: number): number | undefined {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
  } catch {
    return undefined;
  }
}
