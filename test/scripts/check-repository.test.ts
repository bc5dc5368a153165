import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';

let project: string;

beforeEach(async () => {
  project = await mkdtemp(join(tmpdir(), 'postcommit-repository-'));
});
afterEach(async () => {
  await rm(project, { recursive: true, force: true });
});

async function check(files: Record<string, string>): Promise<string> {
  for (const [file, text] of Object.entries(files)) {
    const path = join(project, file);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
  try {
    const { stdout } = await promisify(execFile)(process.execPath, ['scripts/check-repository.mjs', project]);
    return stdout;
  } catch (error) {
    return (error as { stderr: string }).stderr;
  }
}

test('files in order pass', async () => {
  const output = await check({
    'src/a.ts': 'x\n'.repeat(400),
    'docs/a.md': 'see https://example.com/home/people/ and ./work/ and src/work/a.ts',
    'node_modules/x/index.js': ['', 'root', 'x'].join('/'),
    'package-lock.json': '{ "version": "1.0.0", "resolved": "file:x" }',
  });
  expect(output).toBe('3 files are in order.\n');
});

test('each rule names the file, the line and what to do', async () => {
  const output = await check({
    'src/long.ts': 'x\n'.repeat(401),
    'docs/a.md': `fine\nin ${['', 'home', 'somebody', 'project'].join('/')}`,
    'migrations/0001_a.sql': 'select 1;\n-- create table … (',
    'test/a.test.ts': `test${'.only'}('x', () => {});`,
    'package-lock.json': '{\n"resolved": "https://registry.example.com/x.tgz" }',
  });
  expect(output.trim().split('\n').sort()).toEqual([
    expect.stringMatching(/^docs\/a\.md:2: names a folder of one machine/),
    expect.stringMatching(/^migrations\/0001_a\.sql:2: has a character beyond ASCII/),
    expect.stringMatching(/^package-lock\.json:2: ties the lock file to one registry/),
    expect.stringMatching(/^src\/long\.ts: 401 lines, at most 400/),
    expect.stringMatching(/^test\/a\.test\.ts:1: runs only this test/),
  ]);
});
