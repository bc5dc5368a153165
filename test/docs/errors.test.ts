import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { errorCodes, PostcommitError } from '../../src/index.ts';

const root = new URL('../../', import.meta.url);
const page = readFileSync(new URL('docs/errors.md', root), 'utf8');
const rows = page
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.split('|').map((cell) => cell.trim()))
  .map(([, code, meaning, remedy, ...rest]) => ({ code: code?.replaceAll('`', ''), meaning, remedy, rest }));

test('docs/errors.md lists every code of the registry once, and no other', () => {
  expect(rows.map(({ code }) => code).sort()).toEqual(Object.keys(errorCodes).sort());
});

test('every code has its meaning and what to do', () => {
  for (const { code, meaning, remedy, rest } of rows) {
    expect(meaning?.length, `the meaning of ${code}`).toBeGreaterThan(15);
    expect(remedy?.length, `the remedy of ${code}`).toBeGreaterThan(15);
    expect(rest, `the cells of ${code}`).toEqual(['']);
  }
  // Codes named in the text exist, too.
  for (const [code] of page.matchAll(/POSTCOMMIT_E_\w+/g)) expect(errorCodes).toHaveProperty(code);
});

test('every code is raised somewhere', () => {
  const sources = readdirSync(new URL('src/', root), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && file !== 'errors.ts')
    .map((file) => readFileSync(new URL(`src/${file}`, root), 'utf8'))
    .join('\n');
  for (const code of Object.keys(errorCodes)) expect(sources).toContain(`'${code}'`);
});

test('an error has its code, the text of the registry, the detail and the cause', () => {
  const cause = new Error('first');
  const error = new PostcommitError('POSTCOMMIT_E_NOT_FOUND', 'Got 5.', { cause });
  expect(error).toBeInstanceOf(Error);
  expect(error).toMatchObject({ name: 'PostcommitError', code: 'POSTCOMMIT_E_NOT_FOUND', cause });
  expect(error.message).toBe(`${errorCodes.POSTCOMMIT_E_NOT_FOUND} Got 5.`);
  expect(new PostcommitError('POSTCOMMIT_E_NOT_FOUND').message).toBe(errorCodes.POSTCOMMIT_E_NOT_FOUND);
  for (const text of Object.values(errorCodes)) expect(text).toMatch(/^[A-Za-z].*[.]$/s);
});
