import { readFileSync } from 'node:fs';

/**
 * The version of this package. The build replaces this module with one that holds the version (scripts/build.mjs): next
 * to a bundle there is no package.json, or the application's.
 */
export function packageVersion(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
