import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The texts of the browser app's files by name. In a clone it is bundled now; the built version of this module holds them. */
export function appFiles(): Record<string, string> {
  const script = fileURLToPath(new URL('../../scripts/dashboard-app.mjs', import.meta.url));
  return JSON.parse(execFileSync(process.execPath, [script], { encoding: 'utf8', maxBuffer: 16_777_216 }));
}
