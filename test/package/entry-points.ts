import { readFile } from 'node:fs/promises';

/** Packages that importing a subpath loads. Any other subpath loads none. */
export const loadedAtImport: Record<string, string[]> = {
  '.': ['croner', 'pg'],
  './dashboard': ['@hono/node-server', 'hono'],
  './nestjs': ['@nestjs/common', '@nestjs/core', 'croner', 'pg'],
  './testing': ['pg'],
};

/** The modules of the package by subpath, e.g. `./kafka`, as `exports` of package.json has them. */
export async function readEntryPoints(): Promise<Record<string, string>> {
  const { exports } = JSON.parse(await readFile(new URL('../../package.json', import.meta.url), 'utf8')) as {
    exports: Record<string, string | { default: string }>;
  };
  const modules = Object.entries(exports).flatMap(([subpath, target]) =>
    typeof target === 'string' ? [] : [[subpath, target.default]],
  );
  return Object.fromEntries(modules);
}

/** What an application imports: `postcommit/kafka` for `./kafka`. */
export function specifierOf(subpath: string): string {
  return subpath.replace('.', 'postcommit');
}

/** Those that an application with pg alone can import. */
export async function importableWithPg(): Promise<string[]> {
  const own = loadedAtImport['.'] ?? [];
  const needsMore = (subpath: string) => loadedAtImport[subpath]?.some((name) => !own.includes(name));
  return Object.keys(await readEntryPoints()).filter((subpath) => !needsMore(subpath));
}
