import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const pollMs = 200;

/**
 * Installs the private package in `folder` (a URL that ends with a slash) on first use and after a change of its lock file.
 * Such a package has what only some tests, benchmarks or examples need. Processes that need it at the same time wait for
 * the one that installs it.
 */
export function installPackages(folder: URL, what: string): void {
  makeOnce(folder, {
    isMade: () => isInstalled(folder),
    make() {
      console.error(`Installing ${what} (${folder.pathname.split('/').slice(-3, -1).join('/')}), once ...`);
      runNpm(['ci', '--no-fund', '--no-audit'], folder);
    },
  });
}

/** Makes what belongs to `folder`, unless it is made. Processes that need it at the same time wait for the one that makes it. */
export function makeOnce(folder: URL, { isMade, make }: { isMade: () => boolean; make: () => void }): void {
  if (isMade()) return;
  const unlock = lock(folder);
  try {
    if (!isMade()) make();
  } finally {
    unlock();
  }
}

function isInstalled(folder: URL): boolean {
  // npm writes this file last, so an interrupted install does not look finished.
  const installed = new URL('node_modules/.package-lock.json', folder);
  const wanted = new URL('package-lock.json', folder);
  return existsSync(installed) && statSync(installed).mtimeMs >= statSync(wanted).mtimeMs;
}

/** Waits for the lock of the folder and returns what releases it. The lock of a process that has died does not count. */
function lock(folder: URL): () => void {
  const name = createHash('sha256').update(folder.href).digest('hex').slice(0, 16);
  const file = join(tmpdir(), `postcommit-install-${name}.lock`);
  for (;;) {
    try {
      writeFileSync(file, String(process.pid), { flag: 'wx' });
      return () => rmSync(file, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    if (isStale(file)) rmSync(file, { force: true });
    else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pollMs);
  }
}

function isStale(file: string): boolean {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    // Empty for a moment, between the creation of the file and its content.
    if (!(pid > 0)) return Date.now() - statSync(file).mtimeMs > 10_000;
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}

export function runNpm(args: string[], cwd: URL): void {
  const { status, error } = spawnSync('npm', args, {
    cwd: fileURLToPath(cwd),
    // stdout belongs to the caller: benchmarks print measurements there.
    stdio: ['ignore', process.stderr, process.stderr],
    shell: process.platform === 'win32',
  });
  if (error || status !== 0) throw new Error(`npm ${args.join(' ')} failed in ${fileURLToPath(cwd)}`, { cause: error });
}
