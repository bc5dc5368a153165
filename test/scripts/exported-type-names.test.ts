import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const declared = /^export (?:declare )?(?:abstract )?(?:type|interface|class|enum) ([A-Za-z_$][\w$]*)/gm;

/** The modules that export each type name, without those that only re-export it. */
function exportedTypeNames(sources: Iterable<readonly [path: string, text: string]>): Map<string, string[]> {
  const modules = new Map<string, string[]>();
  for (const [path, text] of sources) {
    for (const [, name = ''] of text.matchAll(declared)) modules.set(name, [...(modules.get(name) ?? []), path]);
  }
  return modules;
}

function sharedNames(sources: Iterable<readonly [path: string, text: string]>): [string, string[]][] {
  return [...exportedTypeNames(sources)].filter(([, paths]) => paths.length > 1);
}

/** Users of Nest import these from `postcommit/nestjs` instead of `postcommit`: one is a subclass that takes classes as events. */
const namesOfNest = ['Outbox', 'OutboxEvent'];

test('no type name is exported by two modules', () => {
  const paths = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'));
  expect(paths.length).toBeGreaterThan(100);
  const shared = sharedNames(paths.map((path) => [path, readFileSync(join('src', path), 'utf8')]));
  const unexpected = shared.filter(
    ([name, [, second]]) => !(namesOfNest.includes(name) && second?.startsWith('frameworks/nestjs/')),
  );
  expect(unexpected).toEqual([]);
});

test('a name that two modules export is found, a re-export is not', () => {
  const sources: [string, string][] = [
    ['a.ts', 'export interface Link {\n}\nexport class Lane<T> {}\ninterface Own {}'],
    ['b.ts', 'export type Link = string;\ninterface Own {}\nexport abstract class Lane {}'],
    ['index.ts', "export type { Link } from './a.ts';"],
  ];
  expect(sharedNames(sources)).toEqual([
    ['Link', ['a.ts', 'b.ts']],
    ['Lane', ['a.ts', 'b.ts']],
  ]);
});
