import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { resolveOptions } from '../../src/relay/options.ts';

/** Every page for readers: docs/ and the pages of the root, relative to the project. */
async function listPages(): Promise<string[]> {
  const files = await readdir('docs', { recursive: true });
  const docs = files.filter((file) => file.endsWith('.md')).map((file) => `docs/${file}`);
  return ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...docs];
}

/** The relative links of a page, relative to the project. */
async function linksOf(page: string): Promise<string[]> {
  const text = await readFile(page, 'utf8');
  const targets = [...text.matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)].map(([, target = '']) => target);
  return targets.filter((target) => !/^[a-z]+:/.test(target)).map((target) => join(dirname(page), target));
}

test('every page says in its first line what the reader can do after reading it', async () => {
  const without: string[] = [];
  for (const page of await listPages()) {
    const [, first = ''] = (await readFile(page, 'utf8')).replace(/<!--.*?-->\n*/gs, '').split(/\n\n/);
    if (page !== 'README.md' && !/^After reading this you (?:can|know) /.test(first)) without.push(page);
  }
  expect(without).toEqual([]);
});

test('every page can be reached from the index', async () => {
  const reached = new Set(['docs/README.md']);
  for (const page of reached) {
    for (const link of await linksOf(page)) if (link.endsWith('.md')) reached.add(link);
  }
  expect((await listPages()).filter((page) => !reached.has(page))).toEqual([]);
});

test('every relative link leads to a file', async () => {
  const broken: string[] = [];
  for (const page of await listPages()) {
    for (const link of await linksOf(page)) {
      const found = await stat(link).catch(() => undefined);
      if (found === undefined) broken.push(`${page}: ${link}`);
    }
  }
  expect(broken).toEqual([]);
});

test('the page about relays names every option and every lifecycle event', async () => {
  const page = await readFile('docs/relay.md', 'utf8');
  const firstCells = page.split('\n').map((line) => /^\| (`.*?) \|/.exec(line)?.[1] ?? '');
  const named = new Set(firstCells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name)));
  const { servers: _resolved, ...options } = resolveOptions({
    connectionString: 'postgres://host/shop',
    handlers: { made: { see: () => {} } },
  });
  const lifecycle = await readFile('src/relay/telemetry/lifecycle.ts', 'utf8');
  const events = [...lifecycle.matchAll(/^ {2}(\w+): \[/gm)].map(([, name]) => name);
  expect(events).toContain('deadLettered');
  expect([...Object.keys(options), ...events].filter((name) => !named.has(name))).toEqual([]);
});
