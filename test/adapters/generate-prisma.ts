import { spawnSync } from 'node:child_process';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { makeOnce } from '../../scripts/private-packages.ts';

/**
 * Generates the client of `schema.prisma` in `folder` (a URL that ends with a slash), with the Prisma that is installed in
 * `packages`, on first use and after a change. Neither version downloads an engine for it: the clients have a driver adapter.
 */
export function generatePrisma(folder: URL, packages: URL): void {
  const schema = new URL('schema.prisma', folder);
  // Written last: half of a client does not look finished to another process.
  const made = new URL('generated/made', folder);
  const isCurrent = (source: URL) => statSync(made).mtimeMs >= statSync(source).mtimeMs;
  makeOnce(folder, {
    isMade: () =>
      existsSync(made) && isCurrent(schema) && isCurrent(new URL('node_modules/.package-lock.json', packages)),
    make() {
      generate(schema, packages);
      writeFileSync(made, '');
    },
  });
}

function generate(schema: URL, packages: URL): void {
  const prisma = new URL('node_modules/prisma/build/index.js', packages);
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [fileURLToPath(prisma), 'generate', '--schema', fileURLToPath(schema)],
    {
      cwd: fileURLToPath(packages),
      encoding: 'utf8',
      env: {
        ...process.env,
        PRISMA_HIDE_UPDATE_MESSAGE: '1',
        // They only have to exist.
        PRISMA_SCHEMA_ENGINE_BINARY: process.execPath,
        PRISMA_QUERY_ENGINE_LIBRARY: process.execPath,
      },
    },
  );
  if (status !== 0) throw new Error(`prisma generate failed for ${fileURLToPath(schema)}:\n${stdout}${stderr}`);
}
