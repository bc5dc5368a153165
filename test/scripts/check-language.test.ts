import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';

let project: string;

beforeEach(async () => {
  project = await mkdtemp(join(tmpdir(), 'postcommit-language-'));
});
afterEach(async () => {
  await rm(project, { recursive: true, force: true });
});

async function check(files: Record<string, string>): Promise<{ ok: boolean; output: string }> {
  for (const [file, text] of Object.entries(files)) {
    const path = join(project, file);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
  try {
    const { stdout } = await promisify(execFile)(process.execPath, ['scripts/check-language.mjs', project]);
    return { ok: true, output: stdout };
  } catch (error) {
    return { ok: false, output: (error as { stderr: string }).stderr };
  }
}

test('plain English passes', async () => {
  const { ok, output } = await check({
    'README.md': 'The broker is unreachable. It sends a string back and goes away. Run as `nobody`.',
    'src/a.ts': '// Returns the ids. One answers to another.\nconst strings = [];',
    'migrations/0001.sql': '-- No relay owns it.',
    'other/a.md': 'nobody looks here',
  });
  expect(output).toMatch(/^3 files, \d+ rules: plain English\.\n$/);
  expect(ok).toBe(true);
});

const phrases: [text: string, found: string, instead: string][] = [
  ['the database is away; the relay waits', 'is away', 'is down'],
  ['until the broker is back', 'is back', 'is up again'],
  ['the relay hears it', 'hears', 'receives'],
  ['the emitter rings', 'rings', 'notifies'],
  ['the command that mends it', 'mends', 'fix'],
  ['Nobody has it', 'Nobody', 'the component'],
  ['somebody else claimed it', 'somebody', 'the component'],
  ['whoever waits', 'whoever', 'the component'],
  ['The id stands twice in this call.', 'stands twice', 'appears twice'],
  ['trying on', 'trying on', 'retrying'],
  ['Why is told in claim.sql', 'is told in', 'see'],
  ['a relay looks at the books', 'looks at the books', 'reads the destination state'],
  ['a table, so that people can read it', 'so that people can', 'leave it out'],
  ['Answers the ids', 'Answers', 'Returns'],
];

test.each(phrases)('refuses "%s"', async (text, found, instead) => {
  const { ok, output } = await check({ 'src/relay/a.ts': `\n/** ${text} */\n` });
  expect(output).toContain(`src/relay/a.ts:2: "${found}". Write: `);
  expect(output).toContain(instead);
  expect(output).toMatch(/1 phrase to write in plain English\.\n$/);
  expect(ok).toBe(false);
});

test.each([
  'docs/a.md',
  'ARCHITECTURE.md',
  'CHANGELOG.md',
  'migrations/routines/claim.sql',
  'examples/a.ts',
  'test/a.test.ts',
])('looks at %s', async (file) => {
  expect(await check({ [file]: 'nobody' })).toMatchObject({ ok: false });
});
