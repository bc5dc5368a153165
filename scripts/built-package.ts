import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeOnce } from './private-packages.ts';

const root = new URL('../', import.meta.url);
/** Below the project, so that its dependencies are found. */
const cache = new URL('node_modules/.cache/postcommit-built/', root);
const dist = fileURLToPath(new URL('dist/', cache));
const stamp = new URL('made', cache);
const sources = ['src', 'migrations', 'scripts', 'package.json', 'tsconfig.json', 'tsconfig.build.json'].map((path) =>
  fileURLToPath(new URL(path, root)),
);

/**
 * The path of a module of the package, built from the sources as they are. A process of plain JavaScript starts with a third of the
 * processor time that TypeScript takes, and the tests start hundreds.
 */
export function builtModule(path: string): string {
  buildPackage();
  return join(dist, path);
}

/**
 * Copies the built package into `folder`, e.g. `node_modules/postcommit` of another project, as npm would install it there, without its
 * docs. A link would not do: Node looks for the packages that a file imports from where that file really is.
 */
export function copyPackage(folder: string): void {
  buildPackage();
  rmSync(folder, { recursive: true, force: true });
  cpSync(dist, join(folder, 'dist'), { recursive: true });
  cpSync(new URL('package.json', root), join(folder, 'package.json'));
}

/** Builds the package, unless what is built is newer than all sources. */
export function buildPackage(): void {
  makeOnce(cache, { isMade, make });
}

function make(): void {
  const startedAt = new Date();
  rmSync(cache, { recursive: true, force: true }); // With it the modules of sources that are gone.
  mkdirSync(cache, { recursive: true });
  const build = fileURLToPath(new URL('scripts/build.mjs', root));
  execFileSync(process.execPath, [build, dist], { stdio: ['ignore', 'inherit', 'inherit'] });
  // The content is the time before the build: a source that was saved meanwhile is newer.
  writeFileSync(stamp, startedAt.toISOString());
}

function isMade(): boolean {
  const made = Date.parse(readStamp());
  return sources.every((source) => changedAt(source) < made);
}

/** Of the file or the newest in the folder. A folder changes when a file in it is removed. */
function changedAt(path: string): number {
  const own = statSync(path);
  if (!own.isDirectory()) return own.mtimeMs;
  const inside = readdirSync(path, { recursive: true, encoding: 'utf8' });
  return Math.max(own.mtimeMs, ...inside.map((name) => statSync(join(path, name)).mtimeMs));
}

function readStamp(): string {
  try {
    return readFileSync(stamp, 'utf8');
  } catch {
    return '';
  }
}
