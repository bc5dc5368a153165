import { execFileSync } from 'node:child_process';
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

/**
 * Builds the package into `folder`, e.g. `node_modules/postcommit` of another project, as npm would install it there, without its docs. A
 * link would not do: Node looks for the packages that a file imports from where that file really is.
 */
export function copyPackage(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
  execFileSync(process.execPath, [join(root, 'scripts/build.mjs'), join(folder, 'dist')], { cwd: root });
  cpSync(join(root, 'package.json'), join(folder, 'package.json'));
}
