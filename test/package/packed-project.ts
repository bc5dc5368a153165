import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../..', import.meta.url));
const shell = process.platform === 'win32';

/** A folder for one tarball and the projects that install it. */
export async function makeScratch(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'postcommit-package-'));
}

/** Builds the package and packs it as a release would. Returns the path of the tarball. */
export async function pack(scratch: string): Promise<string> {
  await npm(['pack', '--pack-destination', scratch], root);
  const tarball = (await readdir(scratch)).find((name) => name.endsWith('.tgz'));
  if (tarball === undefined) throw new Error('npm pack wrote no tarball');
  return join(scratch, tarball);
}

/** An empty project, as `npm init` leaves it. Returns its folder. */
export async function makeProject(scratch: string, name: string): Promise<string> {
  const folder = join(scratch, name);
  await mkdir(folder);
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name, private: true, type: 'module' }));
  return folder;
}

export async function install(project: string, packages: readonly string[]): Promise<void> {
  await npm(['install', '--no-audit', '--no-fund', ...packages], project);
}

async function npm(args: string[], cwd: string): Promise<void> {
  // Without what `npm test` tells its own children: it would take this project for the one to install into.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^npm_(?:package|lifecycle|config_local_prefix)/i.test(name)),
  );
  await promisify(execFile)('npm', args, { cwd, env, shell, maxBuffer: 16 * 1024 * 1024 });
}

/** Runs a command to its end, and returns what it printed. Fails with its output if it fails. */
export async function run(command: string, args: string[], cwd: string, env: Record<string, string>): Promise<string> {
  const options = { cwd, env: { ...process.env, NO_COLOR: '1', ...env }, shell, timeout: 60_000 };
  try {
    const { stdout, stderr } = await promisify(execFile)(command, args, options);
    return `${stdout}${stderr}`;
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw new Error(`${command} ${args.join(' ')}\n${stdout}${stderr}`, { cause: error });
  }
}
