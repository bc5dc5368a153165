import { cp, mkdir, readdir, rm, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { install, makeProject } from '../package/packed-project.ts';
import type { ClientUnderTest } from './clients.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** What the tests of publishers need. Copies, because Node resolves imports from where a file really is. */
const copied = ['src', 'test', 'services', 'migrations', 'docs', 'package.json', 'tsconfig.json', 'vitest.config.ts'];

/**
 * A copy of this project that has the given versions of a client, and everything else as it is installed here. No lock
 * file is written into this project. Returns the folder.
 */
export async function copyProject(
  scratch: string,
  { packages, folder, companions = [] }: ClientUnderTest,
  versions: readonly string[],
): Promise<string> {
  const copy = await makeProject(scratch, 'project');
  const isInstalled = (path: string) => path.includes(`${join(root, 'test')}`) && path.endsWith('node_modules');
  for (const name of copied) {
    await cp(join(root, name), join(copy, name), { recursive: true, filter: (path) => !isInstalled(path) });
  }
  const wanted = packages.map((name, index) => `${name}@${versions[index]}`);
  if (folder !== undefined) {
    await rm(join(copy, folder, 'package-lock.json'));
    await install(join(copy, folder), ['--save-exact', ...wanted, ...companions]);
  }
  await linkPackages(copy);
  if (folder !== undefined) return copy;
  const own = await makeProject(scratch, 'client');
  await install(own, wanted);
  for (const name of packages) {
    const link = join(copy, 'node_modules', name);
    await rm(link, { force: true });
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(own, 'node_modules', name), link, 'junction');
  }
  return copy;
}

/** Each package by itself, so that some of them can be replaced. */
async function linkPackages(copy: string): Promise<void> {
  const from = join(root, 'node_modules');
  const to = join(copy, 'node_modules');
  await mkdir(to, { recursive: true });
  for (const name of await readdir(from)) {
    if (name.startsWith('.')) continue;
    if (!name.startsWith('@')) {
      await symlink(join(from, name), join(to, name), 'junction');
      continue;
    }
    await mkdir(join(to, name));
    for (const scoped of await readdir(join(from, name))) {
      await symlink(join(from, name, scoped), join(to, name, scoped), 'junction');
    }
  }
}
