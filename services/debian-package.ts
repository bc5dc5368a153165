import { mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cacheFolder } from './folders.ts';
import { withLock } from './lock.ts';
import { findProgram, runCommand } from './run-command.ts';
import { NotAvailable, type Report } from './service.ts';

/**
 * A Debian (or Ubuntu) package, unpacked with the dependencies that this machine lacks into the cache folder: nothing
 * is installed. So it needs no root, and no system service is started, which an installation would do, for RabbitMQ
 * on all addresses.
 */
export interface UnpackedPackage {
  /** Where the package's `/` is. */
  readonly root: string;
  /** Its libraries, for LD_LIBRARY_PATH. */
  readonly libraryFolders: string[];
}

export interface PackageWish {
  package: string;
  /** Which of its dependencies the server needs to run; others (log rotation, Python) are left out. Libraries always come. */
  dependencies?: RegExp;
  /** Called once with the unpacked files. They are at `root` only after it has returned. */
  adapt?(folder: string, root: string): Promise<void>;
}

const libraries = /^(lib|zlib)/;
const listsAgeMsMax = 3_600_000;

export async function unpackDebianPackage(wish: PackageWish, report: Report): Promise<UnpackedPackage> {
  const cache = cacheFolder();
  const root = join(cache, 'debian', wish.package);
  await mkdir(join(cache, 'debian'), { recursive: true });
  await withLock(`${root}.lock`, async () => {
    if (await exists(root)) return;
    if ((await findProgram('apt-get')) === undefined || (await findProgram('dpkg-deb')) === undefined) {
      throw new NotAvailable(`${wish.package} is not installed, and without apt-get it cannot be fetched`);
    }
    report(`fetching the Debian package ${wish.package}`);
    try {
      await fetchInto(root, wish);
    } catch (cause) {
      throw new NotAvailable(`${wish.package} could not be fetched: ${(cause as Error).message}`, { cause });
    }
  });
  return { root, libraryFolders: await findLibraryFolders(root) };
}

async function fetchInto(root: string, wish: PackageWish): Promise<void> {
  const scratch = await mkdtemp(`${root}.`);
  try {
    const own = process.getuid?.() === 0 ? ['-o', 'APT::Sandbox::User=root'] : [];
    try {
      await download(wish, own, scratch);
    } catch {
      // No package lists here, as in container images, or so old that they name files which are gone.
      await download(wish, [...own, ...(await freshLists(own))], scratch);
    }
    const tree = join(scratch, 'tree');
    await mkdir(tree);
    for (const file of await readdir(scratch)) {
      if (file.endsWith('.deb')) await runCommand('dpkg-deb', ['--extract', file, tree], scratch);
    }
    await wish.adapt?.(tree, root);
    // At the end and at once: a folder with this name is complete.
    await rename(tree, root);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function download(wish: PackageWish, options: string[], folder: string): Promise<void> {
  const plan = await runCommand(
    'apt-get',
    [...options, '--simulate', '--no-install-recommends', 'install', wish.package],
    folder,
  );
  const lacking = [...plan.matchAll(/^Inst (\S+)/gm)].map(([, name]) => name ?? '');
  const needed = lacking.filter(
    (name) => name === wish.package || libraries.test(name) || wish.dependencies?.test(name),
  );
  if (!needed.includes(wish.package)) throw new Error(`apt-get would not install ${wish.package}: ${plan.slice(-500)}`);
  await runCommand('apt-get', [...options, 'download', ...needed], folder);
}

/** Options for apt-get that make it use package lists of our own, fetched when there are none of the last hour. */
async function freshLists(options: string[]): Promise<string[]> {
  const folder = join(cacheFolder(), 'debian', 'lists');
  const ours = ['-o', `Dir::State::lists=${folder}`, '-o', `Dir::Cache=${folder}-cache`];
  await withLock(`${folder}.lock`, async () => {
    const updated = join(folder, 'updated');
    const status = await stat(updated).catch(() => undefined);
    if (status !== undefined && Date.now() - status.mtimeMs < listsAgeMsMax) return;
    await mkdir(join(folder, 'partial'), { recursive: true });
    await mkdir(join(`${folder}-cache`, 'archives', 'partial'), { recursive: true });
    await runCommand('apt-get', [...options, ...ours, 'update'], folder);
    await writeFile(updated, '');
  });
  return ours;
}

/** Debian keeps libraries in a folder per architecture, e.g. `usr/lib/x86_64-linux-gnu`. */
async function findLibraryFolders(root: string): Promise<string[]> {
  const found: string[] = [];
  for (const parent of [join(root, 'usr', 'lib'), join(root, 'lib')]) {
    const names = await readdir(parent).catch(() => []);
    found.push(...names.filter((name) => name.includes('-linux-gnu')).map((name) => join(parent, name)));
  }
  return found;
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
