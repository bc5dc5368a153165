import { execFile } from 'node:child_process';
import { appendFile, cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

let project: string;

beforeEach(async () => {
  project = await mkdtemp(join(tmpdir(), 'postcommit-layers-'));
});
afterEach(async () => {
  await rm(project, { recursive: true, force: true });
});

async function runScript(): Promise<{ ok: boolean; output: string }> {
  try {
    const { stdout } = await promisify(execFile)(process.execPath, ['scripts/check-layers.mjs', project]);
    return { ok: true, output: stdout };
  } catch (error) {
    return { ok: false, output: (error as { stderr: string }).stderr };
  }
}

describe('this repository', () => {
  beforeEach(async () => {
    await cp('src', join(project, 'src'), { recursive: true });
    await cp('ARCHITECTURE.md', join(project, 'ARCHITECTURE.md'));
    await cp('package.json', join(project, 'package.json'));
  });

  test('imports only what the table in ARCHITECTURE.md allows', async () => {
    expect(await runScript()).toMatchObject({ ok: true });
  });

  const added: [what: string, file: string, imported: string, message: string][] = [
    ['a forbidden import', 'outbox/read-json.ts', '../relay/relay.ts', 'outbox must not import relay/relay.ts'],
    ['a cycle between folders', 'wire/raw.ts', '../relay/options.ts', 'wire must not import relay/options.ts'],
    [
      'a part of another publisher',
      'publishers/nats.ts',
      './kafka/record.ts',
      'publishers/nats must not import publishers/kafka/record.ts',
    ],
    [
      'a part of another publisher, from a folder',
      'publishers/webhook/hosts.ts',
      '../redis/address.ts',
      'publishers/webhook must not import publishers/redis/address.ts',
    ],
    [
      'a package that is no client of a broker',
      'publishers/nats.ts',
      'pg',
      'publishers/nats must not import the package pg',
    ],
    [
      'what another group of brokers shares',
      'publishers/redis.ts',
      './aws/entry.ts',
      'publishers/redis must not import publishers/aws/entry.ts',
    ],
    [
      'an earlier stage, by a layer with the set `stage`',
      'relay/settle/settler.ts',
      '../deliver/planner.ts',
      'relay/settle must not import relay/deliver/planner.ts',
    ],
    ['a publisher', 'relay/relay.ts', '../publishers/kafka.ts', 'relay must not import publishers/kafka.ts'],
    ['the command line', 'index.ts', './cli/main.ts', 'index.ts must not import cli/main.ts'],
    [
      'an earlier stage of the relay',
      'relay/deliver/planner.ts',
      '../dispatch/dispatcher.ts',
      'relay/deliver must not import relay/dispatch/dispatcher.ts',
    ],
    [
      'the folder around a nested one',
      'relay/deliver/destinations/batch.ts',
      '../router.ts',
      'relay/deliver/destinations must not import relay/deliver/router.ts',
    ],
    [
      'a statement of another user',
      'outbox/examining/examine-server.ts',
      '../operating/find.ts',
      'outbox/examining must not import outbox/operating/find.ts',
    ],
    ['the users’ tests', 'relay/relay.ts', '../testing/index.ts', 'relay must not import testing/index.ts'],
  ];
  // All of them at once: reading the whole tree takes a second of processor time.
  test(`is refused with ${added.map(([what]) => what).join('; ')}`, async () => {
    for (const [, file, imported] of added) {
      await appendFile(join(project, 'src', file), `\nimport type {} from '${imported}';\n`);
    }
    const { ok, output } = await runScript();
    for (const [what, , , message] of added) expect(output, what).toContain(message);
    expect(output).toContain(`${added.length} layer rules broken.`);
    expect(ok).toBe(false);
  });
});

describe('a small project', () => {
  const table = `# Architecture

## Layers

| layer | may import | packages | holds |
|---|---|---|---|
| \`src/outbox\` | | | SQL |
| \`src/relay\` | \`outbox\` | \`pg\` | |
| \`src/cli\` | \`relay\` | \`commander\` | |

## Decisions

| \`src/other\` | is another table |
`;
  const empty = 'export {};\n';
  const tree = { 'outbox/claim.ts': empty, 'relay/relay.ts': empty, 'cli/main.ts': empty, 'errors.ts': empty };

  /** Writes the files below src/ and returns what the script says about them. */
  async function check(files: Record<string, string>, architecture = table) {
    await writeFile(join(project, 'ARCHITECTURE.md'), architecture);
    for (const [file, text] of Object.entries({ ...tree, ...files })) {
      const path = join(project, 'src', file);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, text);
    }
    return runScript();
  }

  test('passes when it keeps to its table', async () => {
    const result = await check({
      'outbox/claim.ts': "import { x } from '../errors.ts';\nconst sql = `select * from outbox_queue`;\n",
      'relay/relay.ts': "import pg from 'pg';\nimport './lane.ts';\nimport { claim } from '../outbox/claim.ts';\n",
      'relay/lane.ts': "import { join } from 'node:path';\n",
      'cli/main.ts': "import { Command } from 'commander';\nconst help = 'Delete from the queue what is older';\n",
    });
    expect(result).toEqual({ ok: true, output: '5 files, 6 imports, 3 layers: all imports are allowed.\n' });
  });

  test('comments and text are neither imports nor SQL', async () => {
    const result = await check({
      'relay/a.ts': "// import { x } from '../cli/main.ts';\nconst text = \"import x from '../cli/y.ts'\";\n",
      'cli/c.ts': `/* select * from a */\nconst n = 4 / 2; const d = \`\${n / 2} select a lane from the list\`;\n`,
    });
    expect(result).toMatchObject({ ok: true });
  });

  const broken: [rule: string, files: Record<string, string>, message: RegExp][] = [
    [
      'an import that the table does not list',
      { 'outbox/claim.ts': "\nimport type { Relay } from '../relay/relay.ts';\n" },
      /src\/outbox\/claim\.ts:2: outbox must not import relay\/relay\.ts\n {4}Fix: /,
    ],
    [
      'a re-export',
      { 'outbox/claim.ts': "export { log } from '../relay/relay.ts';" },
      /outbox must not import relay\/relay\.ts/,
    ],
    [
      'import()',
      { 'relay/relay.ts': "const t = await import('../cli/main.ts');" },
      /src\/relay\/relay\.ts:1: relay must not import cli\/main\.ts/,
    ],
    [
      'the type of an import()',
      { 'relay/relay.ts': "type T = import('../cli/main.ts').T;" },
      /relay must not import cli\/main\.ts/,
    ],
    [
      'a shared module that imports a layer',
      { 'errors.ts': "import './relay/relay.ts';" },
      /src\/errors\.ts:1: a module directly in src\/ must not import relay\/relay\.ts/,
    ],
    [
      'a package of another layer',
      { 'outbox/claim.ts': "import {\n  Pool,\n} from 'pg';" },
      /src\/outbox\/claim\.ts:3: outbox must not import the package pg/,
    ],
    ['a built-in without node:', { 'relay/relay.ts': "import fs from 'fs';" }, /Fix: write node:fs\./],
    ['a folder without a row', { 'other/a.ts': empty }, /src\/other\/a\.ts: belongs to no layer/],
    [
      'SQL in cli/',
      { 'cli/status.ts': `const q = \`\n  select count(*)\n  from \${schema}.outbox_queue\`;` },
      /src\/cli\/status\.ts:1: holds SQL \(select count\(\*\) from x\.outbox_queue \.\.\.\)/,
    ],
    [
      'SQL in capitals',
      { 'cli/api.ts': 'run("UPDATE outbox_destinations SET paused = true");' },
      /src\/cli\/api\.ts:1: holds SQL/,
    ],
  ];
  test.each(broken)('is refused with %s', async (_, files, message) => {
    const { ok, output } = await check(files);
    expect(output).toMatch(message);
    expect(output).toMatch(/1 layer rule broken\.\n$/);
    expect(ok).toBe(false);
  });

  test('is refused when its table has a cycle', async () => {
    const { ok, output } = await check({}, table.replace('| `src/outbox` | |', '| `src/outbox` | `cli` |'));
    expect(output).toMatch(/ARCHITECTURE\.md:7: layers import each other: outbox -> cli -> relay -> outbox/);
    expect(ok).toBe(false);
  });

  const nested = table.replace(
    '| `src/cli` | `relay`',
    '| `src/relay/lane` | `outbox` | | |\n| `src/relay/settle` | | | |\n| `src/cli` | `relay/*`',
  );
  const stages = { 'relay/lane/lane.ts': empty, 'relay/settle/settler.ts': empty };

  test('passes when `/*` lists a layer with those nested in it', async () => {
    const imports = "import '../relay/relay.ts';\nimport '../relay/lane/lane.ts';\n";
    expect(await check({ ...stages, 'cli/main.ts': imports }, nested)).toMatchObject({ ok: true });
  });

  test('is refused when a nested layer imports another that its own row does not list', async () => {
    const { ok, output } = await check({ ...stages, 'relay/lane/lane.ts': "import '../settle/settler.ts';\n" }, nested);
    expect(output).toContain('relay/lane must not import relay/settle/settler.ts');
    expect(ok).toBe(false);
  });

  test('is refused when nested layers import each other', async () => {
    const cyclic = nested.replace('| `src/relay/settle` | |', '| `src/relay/settle` | `cli` |');
    const { output } = await check(stages, cyclic);
    expect(output).toMatch(/layers import each other: relay\/settle -> cli -> relay\/settle/);
  });

  test('passes when a row that is a set stands for the layers that it lists', async () => {
    const sets = nested
      .replace(
        '| `src/relay/lane` | `outbox` |',
        '| `stage` | `outbox`, `relay/settle` | | |\n| `src/relay/lane` | `stage` |',
      )
      .replace('| `src/relay/settle` | |', '| `src/relay/settle` | `stage` |');
    const imports = "import '../../outbox/claim.ts';\nimport '../settle/settler.ts';\n";
    const files = { ...stages, 'relay/lane/lane.ts': imports };
    expect(await check(files, sets)).toMatchObject({ ok: true });
    const { output } = await check({ ...files, 'relay/settle/settler.ts': "import '../lane/lane.ts';\n" }, sets);
    expect(output).toMatch(/relay\/settle must not import relay\/lane\/lane\.ts\n.*\n1 layer rule broken/);
  });

  describe('with a row for all brokers', () => {
    const withBrokers = table.replace(
      '| `src/cli`',
      '| `src/publishers` | | | |\n| `src/publishers/<broker>` | `publishers` | its client | |\n| `src/publishers/sqs` | `publishers` | `sqs-client` | |\n| `src/cli`',
    );
    const publishers = {
      'publishers/publisher.ts': empty,
      'publishers/kafka.ts': "import './publisher.ts';\nimport './kafka/record.ts';\nimport 'kafka-client';\n",
      'publishers/kafka/record.ts': empty,
      'publishers/sqs.ts': "import './publisher.ts';\nimport 'sqs-client';\n",
    };
    beforeEach(async () => {
      const exported = (file: string) => ({ default: `./dist/${file}.js` });
      const manifest = {
        exports: {
          '.': exported('index'),
          './kafka': exported('publishers/kafka'),
          './sqs': exported('publishers/sqs'),
        },
        peerDependencies: { 'kafka-client': '*', 'sqs-client': '*', pg: '*' },
      };
      await writeFile(join(project, 'package.json'), JSON.stringify(manifest));
    });

    test('passes when each imports its client and what all share', async () => {
      expect(await check(publishers, withBrokers)).toMatchObject({ ok: true });
    });

    test.each([
      ['another broker', "import './sqs.ts';", 'publishers/kafka must not import publishers/sqs.ts'],
      ['a peer that another row lists', "import 'pg';", 'publishers/kafka must not import the package pg'],
      ['a package that is no peer', "import 'commander';", 'publishers/kafka must not import the package commander'],
    ])('is refused when one imports %s', async (_, text, message) => {
      const { ok, output } = await check({ ...publishers, 'publishers/kafka.ts': text }, withBrokers);
      expect(output).toContain(message);
      expect(ok).toBe(false);
    });

    test('is refused when what all share imports one', async () => {
      const { output } = await check({ ...publishers, 'publishers/publisher.ts': "import './kafka.ts';" }, withBrokers);
      expect(output).toContain('publishers must not import publishers/kafka.ts');
    });
  });

  test('is refused when its table names what does not exist', async () => {
    const { output } = await check({}, table.replace('`src/cli` | `relay`', '`src/cli` | `rely`'));
    expect(output).toMatch(/ARCHITECTURE\.md:9: lists rely, which has no row/);
  });
});
