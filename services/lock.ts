import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { identify, isRunning } from './process-identity.ts';

const pollMs = 100;
/** A first `up` downloads for a minute or two; whoever waits longer than this waits for something stuck. */
const patienceMs = 600_000;

/** Runs `work` while no other process runs the work of this lock. A process that died does not hold it. */
export async function withLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  await acquire(path);
  try {
    return await work();
  } finally {
    await rm(path, { force: true });
  }
}

async function acquire(path: string): Promise<void> {
  const own = `${path}.${process.pid}.${Math.random().toString(36).slice(2)}`;
  // Written elsewhere and linked, so that nobody ever reads half an owner.
  await writeFile(own, JSON.stringify(await identify(process.pid)));
  const deadline = Date.now() + patienceMs;
  try {
    for (;;) {
      try {
        return await link(own, path);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      await releaseIfAbandoned(path, `${own}.abandoned`);
      if (Date.now() > deadline) throw new Error(`${path} is held by another process for ${patienceMs} ms.`);
      await sleep(pollMs);
    }
  } finally {
    await rm(own, { force: true });
  }
}

async function releaseIfAbandoned(path: string, aside: string): Promise<void> {
  const seen = await readFile(path, 'utf8').catch(() => undefined);
  if (seen === undefined || (await isRunning(JSON.parse(seen)))) return;
  // Two may find the same dead owner. Who moves the second one's new lock away puts it back.
  await rename(path, aside).catch(() => {});
  const moved = await readFile(aside, 'utf8').catch(() => undefined);
  if (moved !== undefined && moved !== seen) await link(aside, path).catch(() => {});
  await rm(aside, { force: true });
}
