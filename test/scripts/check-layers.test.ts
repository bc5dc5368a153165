import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';

let project: string;

beforeEach(async () => {
  project = await mkdtemp(join(tmpdir(), 'postcommit-layers-'));
});
afterEach(async () => {
  await rm(project, { recursive: true, force: true });
});

/** Writes the files below src/ and returns what the script says about them. */
async function check(files: Record<string, string>): Promise<{ ok: boolean; output: string }> {
  for (const [file, text] of Object.entries(files)) {
    const path = join(project, 'src', file);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
  try {
    const { stdout } = await promisify(execFile)(process.execPath, ['scripts/check-layers.mjs', project]);
    return { ok: true, output: stdout };
  } catch (error) {
    return { ok: false, output: (error as { stderr: string }).stderr };
  }
}

const empty = 'export {};\n';

test('a tree that keeps the rules passes', async () => {
  const result = await check({
    'errors.ts': empty,
    'outbox/claim.ts': "import { x } from '../errors.ts';\nconst sql = `select * from outbox_queue`;\n",
    'publishers/publisher.ts': empty,
    'publishers/webhook.ts': "import '../errors.ts';\nimport type { P } from './publisher.ts';\n",
    'database/pool.ts': "import pg from 'pg';\nimport { join } from 'node:path';\n",
    'demo/order-service-tables.ts': "import pg from 'pg';\nconst sql = 'create table orders (id int)';\n",
    'demo/demo.ts': "import { run } from '../cli/run.ts';\nimport pc from 'picocolors';\n",
    'cli/run.ts': "import { Command } from 'commander';\nconst help = 'Delete from the queue what is older';\n",
    'testing/harness.ts': "import './clock.ts';\n",
    'testing/clock.ts': empty,
  });
  expect(result).toEqual({ ok: true, output: '10 files, 10 imports, every one in its room.\n' });
});

const violations: [rule: string, files: Record<string, string>, message: RegExp][] = [
  [
    'outbox/ imports no service',
    { 'outbox/claim.ts': `\nimport type { Relay } from '../relay/relay.ts';\n`, 'relay/relay.ts': empty },
    /src\/outbox\/claim\.ts:2: must not import relay\/relay\.ts\n {4}Fix: outbox\/ is SQL and rows/,
  ],
  [
    'outbox/ re-exports no service',
    { 'outbox/claim.ts': `export { log } from '../telemetry/logging.ts';`, 'telemetry/logging.ts': empty },
    /must not import telemetry\/logging\.ts/,
  ],
  [
    'a publisher knows only the contract',
    { 'publishers/kafka.ts': `import { a } from './nats.ts';`, 'publishers/nats.ts': empty },
    /src\/publishers\/kafka\.ts:1: must not import publishers\/nats\.ts/,
  ],
  [
    'nothing imports testing/',
    { 'relay/relay.ts': `const t = await import('../testing/fake.ts');`, 'testing/fake.ts': empty },
    /src\/relay\/relay\.ts:1: must not import testing\/fake\.ts/,
  ],
  [
    'only cli/ and demo/ import cli/',
    { 'index.ts': `export { main } from './cli/main.ts';`, 'cli/main.ts': empty },
    /src\/index\.ts:1: must not import cli\/main\.ts\n {4}Fix: the library must work without the command line/,
  ],
  [
    'a package outside its folders',
    { 'outbox/claim.ts': `import {\n  Pool,\n} from 'pg';` },
    /src\/outbox\/claim\.ts:3: must not import the package pg\n {4}Fix: only database\/, emit\/, relay\//,
  ],
  [
    'a package that no rule knows',
    { 'relay/relay.ts': `import { x } from '@scope/new-thing/sub';` },
    /imports the package @scope\/new-thing, which no rule knows/,
  ],
  ['a built-in without node:', { 'relay/relay.ts': `import fs from 'fs';` }, /Fix: write node:fs\./],
  [
    'SQL in cli/',
    { 'cli/status.ts': `const q = \`\n  select count(*)\n  from \${schema}.outbox_queue\`;` },
    /src\/cli\/status\.ts:1: holds SQL \(select count\(\*\) from x\.outbox_queue …\)/,
  ],
  [
    'SQL in capitals in dashboard/',
    { 'dashboard/api.ts': `run("UPDATE outbox_destinations SET paused = true");` },
    /src\/dashboard\/api\.ts:1: holds SQL/,
  ],
  [
    'SQL in demo/ outside order-service',
    { 'demo/demo.ts': '// it’s a comment with `backticks`\nrun(`with a as (select 1) delete from b`);' },
    /src\/demo\/demo\.ts:2: holds SQL/,
  ],
  [
    'a circle of imports',
    {
      'relay/a.ts': `import { b } from './b.ts';`,
      'relay/b.ts': `import { type C } from './c.ts';`,
      'relay/c.ts': `export * from './a.ts';`,
    },
    /circular import relay\/a\.ts -> relay\/b\.ts -> relay\/c\.ts -> relay\/a\.ts/,
  ],
];

for (const [rule, files, message] of violations) {
  test(`refused: ${rule}`, async () => {
    const { ok, output } = await check(files);
    expect(output).toMatch(message);
    expect(output).toMatch(/1 layer rule broken\.\n$/);
    expect(ok).toBe(false);
  });
}

test('comments, text and types are not taken for imports, SQL or circles', async () => {
  const result = await check({
    'relay/a.ts': `import type { B } from './b.ts';\n// import { x } from '../testing/x.ts';\n`,
    'relay/b.ts': `import { a } from './a.ts';\nconst quote = /['"\`]/;\nconst text = "import x from '../cli/y.ts'";\n`,
    'cli/c.ts': `/* select * from a */\nconst n = 4 / 2; const d = \`\${n / 2} select a lane from the list\`;\n`,
  });
  expect(result.output).toMatch(/3 files, 2 imports/);
});
