import { spawn } from 'node:child_process';
import { setPriority } from 'node:os';
import { fileURLToPath } from 'node:url';

/** Starts a program of the project, which leaves the cores to the tests. Returns what waits for its end. It reports its errors itself. */
export function runInBackground(program: URL): () => Promise<void> {
  const child = spawn(process.execPath, ['--import', 'tsx', fileURLToPath(program)], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (child.pid !== undefined) setPriority(child.pid, 10);
  const ended = new Promise<void>((resolve) => {
    child.once('error', () => resolve());
    child.once('close', () => resolve());
  });
  return () => ended;
}
