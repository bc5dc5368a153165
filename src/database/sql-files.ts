import { readdirSync, readFileSync } from 'node:fs';
import { sep } from 'node:path';

/**
 * The SQL files of this package: text by path below `migrations/`, with forward slashes, sorted by path.
 *
 * This module reads the folder, so a change of a file takes effect without a build. The build replaces it with one that
 * holds the texts (scripts/build.mjs): a bundle of the package has no folder to read.
 */
export function sqlFiles(): Readonly<Record<string, string>> {
  const folder = new URL('../../migrations/', import.meta.url);
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.sql'))
    .map((path) => path.split(sep).join('/'))
    .sort();
  return Object.fromEntries(paths.map((path) => [path, readFileSync(new URL(path, folder), 'utf8')]));
}
