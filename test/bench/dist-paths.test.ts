import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : sources(path);
    return entry.name.endsWith('.ts') ? [path] : [];
  });
}

// Benchmarks import from dist by computed paths, which the compiler does not check.
test('what benchmarks import from dist is a module of src', () => {
  const paths = sources('bench').flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/\bdist(?:\('|\/)([\w/-]+)\.js/g)].map(([, path]) => path),
  );
  expect(paths).toContain('index');
  expect(paths.filter((path) => !existsSync(`src/${path}.ts`))).toEqual([]);
});
