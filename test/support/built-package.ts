import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { makeOnce } from '../../scripts/private-packages.ts';

const root = new URL('../../', import.meta.url);
/** Below the project, so that its dependencies are found. */
const folder = new URL('node_modules/.cache/postcommit-test/', root);
const stamp = new URL('made', folder);
const sources = ['src/', 'migrations/', 'scripts/'].map((path) => new URL(path, root));

/**
 * The path of a module of the package, built from the sources as they are. A process of plain JavaScript starts with a third of the
 * processor time that TypeScript takes, and the tests start hundreds.
 */
export function builtModule(path: string): string {
  makeOnce(folder, { isMade, make });
  return fileURLToPath(new URL(`dist/${path}`, folder));
}

function make(): void {
  const startedAt = new Date();
  mkdirSync(folder, { recursive: true });
  const build = fileURLToPath(new URL('scripts/build.mjs', root));
  execFileSync(process.execPath, [build, fileURLToPath(new URL('dist', folder))], { stdio: 'inherit' });
  // The content is the time before the build: a source that was saved meanwhile is newer.
  writeFileSync(stamp, startedAt.toISOString());
}

function isMade(): boolean {
  const made = Date.parse(readStamp());
  return sources.every((source) =>
    readdirSync(source, { recursive: true, withFileTypes: true }).every(
      (entry) => statSync(`${entry.parentPath}/${entry.name}`).mtimeMs < made,
    ),
  );
}

function readStamp(): string {
  try {
    return readFileSync(stamp, 'utf8');
  } catch {
    return '';
  }
}
