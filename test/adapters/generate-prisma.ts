import { spawnSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/**
 * Generates the client of `schema.prisma` in `folder` (a URL that ends with a slash), with the Prisma that is installed in
 * `packages`, on first use and after a change. Neither version downloads an engine for it: the clients have a driver adapter.
 */
export function generatePrisma(folder: URL, packages: URL): void {
  const generated = new URL('generated/client.ts', folder);
  const schema = new URL('schema.prisma', folder);
  const prisma = new URL('node_modules/prisma/build/index.js', packages);
  const isCurrent = (source: URL) => statSync(generated).mtimeMs >= statSync(source).mtimeMs;
  if (existsSync(generated) && isCurrent(schema) && isCurrent(new URL('node_modules/.package-lock.json', packages)))
    return;
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
  if (status !== 0) throw new Error(`prisma generate failed in ${fileURLToPath(folder)}:\n${stdout}${stderr}`);
}
