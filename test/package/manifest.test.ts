import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';

async function readJson(name: string) {
  return JSON.parse(await readFile(new URL(`../../${name}`, import.meta.url), 'utf8'));
}

test('dependencies are ranges, so that a project can have one copy of each', async () => {
  const { dependencies } = await readJson('package.json');
  expect(Object.values(dependencies as Record<string, string>).filter((range) => !range.startsWith('^'))).toEqual([]);
});

test('tracing is an optional peer, not a dependency', async () => {
  const { dependencies, peerDependencies, peerDependenciesMeta } = await readJson('package.json');
  expect(dependencies).not.toHaveProperty('@opentelemetry/api');
  expect(peerDependencies['@opentelemetry/api']).toBe('*');
  expect(peerDependenciesMeta['@opentelemetry/api']).toEqual({ optional: true });
});

test('the lock file agrees with package.json, and names no registry', async () => {
  const [manifest, lock] = [await readJson('package.json'), await readJson('package-lock.json')];
  for (const kind of ['dependencies', 'devDependencies', 'peerDependencies', 'peerDependenciesMeta']) {
    expect(lock.packages[''][kind], kind).toEqual(manifest[kind]);
  }
  const resolved = Object.entries<{ resolved?: string }>(lock.packages).filter(([, entry]) => entry.resolved);
  expect(resolved).toEqual([]);
});
