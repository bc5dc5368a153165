import { lstat, mkdir } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';

/** Downloaded servers. They outlive `down`, so that the next `up` is quick. */
export function cacheFolder(): string {
  const { POSTCOMMIT_SERVICES_CACHE: chosen, XDG_CACHE_HOME: cache } = process.env;
  if (chosen) return chosen;
  if (cache) return join(cache, 'postcommit-services');
  const usual = process.platform === 'darwin' ? join('Library', 'Caches') : '.cache';
  return join(homedir(), usual, 'postcommit-services');
}

/** Data, logs and records of the servers that run. One per user and temporary folder. */
export async function runFolder(): Promise<string> {
  const uid = process.getuid?.();
  const folder = join(tmpdir(), `postcommit-services-${uid ?? 'user'}`);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  // Anybody may create names in a temporary folder, and the records in this one say which processes to end.
  const status = await lstat(folder);
  if (!status.isDirectory() || (uid !== undefined && status.uid !== uid)) {
    throw new Error(`${folder} belongs to somebody else. Remove it, or point TMPDIR at another folder.`);
  }
  return folder;
}
