import { readFileSync } from 'node:fs';

/** The version of this package; `unknown` where it was bundled without its package.json. */
export function packageVersion(): string {
  try {
    const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
    return (JSON.parse(text) as { version: string }).version;
  } catch {
    return 'unknown';
  }
}
