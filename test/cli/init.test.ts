import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { runHere } from './fake-terminal.ts';
import { projectFolder } from './run-cli.ts';

test('the sample of postcommit init handles no type that the README emits: it would take those events from other relays', async () => {
  const cwd = projectFolder({});
  expect((await runHere(['init'], { cwd })).code).toBe(0);
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
  const emitted = [...readme.matchAll(/type: '([\w.]+)'/g)].map(([, type]) => type);
  const text = readFileSync(join(cwd, 'postcommit.config.ts'), 'utf8');
  expect(emitted).toContain('order.created');
  expect(emitted.filter((type) => text.includes(`'${type}'`))).toEqual([]);
});

test('postcommit init says that the handlers must be those of the types that the service emits', async () => {
  for (const format of ['ts', 'js', 'json']) {
    const cwd = projectFolder({});
    const { stdout } = await runHere(['init', '--format', format], { cwd });
    expect(stdout).toMatch(/1\. .*a handler for each type that your service emits/);
  }
});

test.each([
  ['ts', "schema: 'other',"],
  ['js', "schema: 'other',"],
  ['json', '"schema": "other",'],
])('postcommit init --schema writes the schema into a %s file', async (format, line) => {
  for (const { args, env } of [
    { args: ['--schema', 'other'], env: {} },
    { args: [], env: { POSTCOMMIT_SCHEMA: 'other' } },
  ]) {
    const cwd = projectFolder({});
    expect((await runHere(['init', '--format', format, '--partitions', 'day', ...args], { cwd, env })).code).toBe(0);
    const text = readFileSync(join(cwd, `postcommit.config.${format}`), 'utf8');
    expect(text).toContain(line);
    expect(text).toMatch(/"?partitions"?: ["']day["']/);
  }
});

test('postcommit init refuses a schema that PostgreSQL refuses, and writes nothing', async () => {
  const cwd = projectFolder({});
  const { code, stderr } = await runHere(['init', '--schema', 'pg_other'], { cwd });
  expect([code, stderr]).toEqual([2, expect.stringContaining('POSTCOMMIT_E_BAD_SCHEMA_NAME')]);
  expect(existsSync(join(cwd, 'postcommit.config.ts'))).toBe(false);
});

test('postcommit init quotes a schema with a quote', async () => {
  const cwd = projectFolder({});
  await runHere(['init', '--schema', `Bob's`], { cwd });
  expect(readFileSync(join(cwd, 'postcommit.config.ts'), 'utf8')).toContain(`schema: "Bob's",`);
});

describe('postcommit init --force beside another config file', () => {
  test('refuses to write a file that would never be read', async () => {
    const cwd = projectFolder({ 'postcommit.config.ts': '' });
    const result = await runHere(['init', '--force', '--format', 'json'], { cwd });
    expect(result).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr).toContain('postcommit.config.ts is read before postcommit.config.json');
    expect(existsSync(join(cwd, 'postcommit.config.json'))).toBe(false);
  });

  test('says which file is no longer read', async () => {
    const cwd = projectFolder({ 'postcommit.config.json': '{}' });
    const result = await runHere(['init', '--force'], { cwd });
    expect(result).toMatchObject({ code: 0, stderr: '' });
    expect(result.stdout).toContain('no longer read, because postcommit.config.ts comes first: postcommit.config.json');
  });

  test('overwrites the file itself', async () => {
    const cwd = projectFolder({ 'postcommit.config.json': '{}' });
    expect((await runHere(['init', '--force', '--format', 'json'], { cwd })).code).toBe(0);
    expect(readFileSync(join(cwd, 'postcommit.config.json'), 'utf8')).toContain('handlers');
  });
});
