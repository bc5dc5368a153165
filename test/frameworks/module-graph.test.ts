import { readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { parseSync } from 'oxc-parser';
import { expect, it } from 'vitest';

/** The packages that are loaded when this file of src is: static imports only, without those of types. */
function packagesOf(file: URL, seen = new Set<string>(), packages = new Set<string>()): Set<string> {
  if (seen.has(file.href)) return packages;
  seen.add(file.href);
  const { module } = parseSync(file.pathname, readFileSync(file, 'utf8'));
  const imported = [
    ...module.staticImports.filter(({ entries }) => entries.length === 0 || entries.some(({ isType }) => !isType)),
    ...module.staticExports.flatMap(({ entries }) => entries.filter(({ isType }) => !isType)),
  ];
  for (const { moduleRequest } of imported) {
    const name = moduleRequest?.value;
    if (name === undefined || isBuiltin(name)) continue;
    if (name.startsWith('.')) packagesOf(new URL(name, file), seen, packages);
    else packages.add(name);
  }
  return packages;
}

const source = (path: string) => new URL(`../../src/${path}`, import.meta.url);

it("loads nothing but pg and small libraries with import 'postcommit'", () => {
  expect([...packagesOf(source('index.ts'))].sort()).toEqual(['croner', 'pg']);
});

it('loads Nest, and no other framework or client, with postcommit/nestjs', () => {
  const packages = [...packagesOf(source('frameworks/nestjs/index.ts'))].sort();
  expect(packages).toEqual(['@nestjs/common', '@nestjs/core', 'croner', 'pg']);
});
