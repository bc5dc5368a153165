import { copyFile, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, type TestContext } from 'vitest';
import { createTestDatabase } from '../support/database.ts';
import { recordServer } from '../support/servers-used.ts';
import { importableWithPg, specifierOf } from './entry-points.ts';
import { install, makeProject, makeScratch, pack, run } from './packed-project.ts';
import { checkDeclarations, resolveTypes } from './type-resolution.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const tsx = join(root, 'node_modules/tsx/dist/esm/index.mjs');

/**
 * Versions at which pg changed what matters here: 8.11.0 is the oldest that is supported, 8.16.3 has no
 * getTransactionStatus, 8.22.0 has no pipeline and warns of concurrent statements, 8.23.0 has the pipeline, and later
 * versions take no query objects of other classes on it.
 */
const pgVersions = ['8.11.0', '8.16.3', '8.22.0', '8.23.0', 'latest'];

/** Clients that a project may have for its own use, older than the publishers need. */
const olderClients = ['redis@4.7.1', 'amqplib@0.10.9', 'kafkajs@1.16.0'];

describe('the package as npm installs it', () => {
  const projects = new Map<string, string>();
  let scratch: string;
  let reasonToSkip: string | undefined;

  beforeAll(async () => {
    scratch = await makeScratch();
    const tarball = await pack(scratch);
    const [line = ''] = shellLines(await readFile(join(root, 'README.md'), 'utf8'), 'npm install postcommit');
    const asTheReadmeSays = line.replace('npm install', '').trim().split(/\s+/);
    const wanted: [string, string[]][] = [
      ...pgVersions.map((version): [string, string[]] => [version, ['postcommit', `pg@${version}`]]),
      ['two-copies', ['postcommit', 'pg@latest', 'pg-other@npm:pg@8.16.3']],
      ['readme', asTheReadmeSays],
      ['older-clients', ['postcommit', 'pg']],
      ['types', ['postcommit', 'pg', '@types/pg', '@types/node@20']],
      ['newest-types', ['postcommit', 'pg', '@types/pg', '@types/node']],
    ];
    const installOne = async ([name, packages]: [string, string[]]) => {
      const project = await makeProject(scratch, `project-${name}`);
      if (name === 'older-clients') await install(project, olderClients);
      await install(
        project,
        packages.map((each) => (each === 'postcommit' ? tarball : each)),
      );
      projects.set(name, project);
    };
    try {
      // All of them to their end: an install that continues would write into what is removed afterwards.
      for (const result of await Promise.allSettled(wanted.map(installOne))) {
        if (result.status === 'rejected') throw result.reason;
      }
    } catch (error) {
      if (process.env.CI === 'true') throw error;
      reasonToSkip = 'npm install failed';
      recordServer(`no npm registry (${reasonToSkip})`);
    }
  }, 240_000);
  afterAll(() => rm(scratch, { recursive: true, force: true }));

  function projectOf(name: string, context: TestContext): string {
    if (reasonToSkip !== undefined) context.skip(reasonToSkip);
    return projects.get(name) as string;
  }

  async function withDatabase(work: (env: { DATABASE_URL: string }) => Promise<void>): Promise<void> {
    const database = await createTestDatabase({ migrate: false });
    try {
      await work({ DATABASE_URL: database.url });
    } finally {
      await database.close();
    }
  }

  async function runScenario(project: string, env: Record<string, string>): Promise<void> {
    await copyFile(new URL('pg-scenario.mjs', import.meta.url), join(project, 'scenario.mjs'));
    // Whatever a version of pg warns of fails in the next major one.
    const output = await run(process.execPath, ['--throw-deprecation', 'scenario.mjs'], project, env);
    expect(output).toBe('delivered 60\n');
  }

  it.for(pgVersions)('emits, commits, rolls back and relays with pg %s', async (version, context) => {
    const project = projectOf(version, context);
    await withDatabase((env) => runScenario(project, env));
  });

  it('emits through a copy of pg that is not the one postcommit imports', async (context) => {
    const project = projectOf('two-copies', context);
    await withDatabase((env) => runScenario(project, { ...env, PG_PACKAGE: 'pg-other' }));
  });

  it('installs beside older clients of brokers, and refuses them only when a destination needs them', async (context) => {
    const project = projectOf('older-clients', context);
    const output = await run(process.execPath, ['--input-type=module', '--eval', connectAll], project, {});
    expect(output.trim().split('\n')).toEqual([
      'POSTCOMMIT_E_PACKAGE_TOO_OLD: redis 4.7.1 is installed, 6.3.0 or later is needed. Run: npm install redis@latest',
      'POSTCOMMIT_E_PACKAGE_TOO_OLD: amqplib 0.10.9 is installed, 2.3.1 or later is needed. Run: npm install amqplib@latest',
      'POSTCOMMIT_E_PACKAGE_TOO_OLD: kafkajs 1.16.0 is installed, 2.2.4 or later is needed. Run: npm install kafkajs@latest',
      'POSTCOMMIT_E_PACKAGE_MISSING: Run: npm install @nats-io/transport-node @nats-io/jetstream',
    ]);
  });

  it('accepts every version of a package that is optional', async () => {
    const { peerDependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const { pg, ...optional } = peerDependencies as Record<string, string>;
    expect(pg).toBe('^8.11.0');
    expect(new Set(Object.values(optional))).toEqual(new Set(['*']));
  });

  it('has types for every subpath: in ESM and CommonJS, with node16, nodenext and bundler', async (context) => {
    await resolveTypes(projectOf('types', context));
  });

  it.for(['types', 'newest-types'])('has declarations that compile without skipLibCheck: %s', async (name, context) => {
    await checkDeclarations(projectOf(name, context));
  });

  it('every subpath can be loaded with require(), where only pg is installed', async (context) => {
    const specifiers = (await importableWithPg()).map(specifierOf);
    const code = `for (const name of ${JSON.stringify(specifiers)}) if (Object.keys(require(name)).length > 0) console.log(name);`;
    const args = ['--input-type=commonjs', '--no-warnings', '--eval', code];
    const output = await run(process.execPath, args, projectOf('types', context), {});
    expect(output.trim().split('\n')).toEqual(specifiers);
  });

  it('brings no copy of pg of its own', async (context) => {
    const lock = JSON.parse(await readFile(join(projectOf('8.16.3', context), 'package-lock.json'), 'utf8'));
    const copies = Object.keys(lock.packages).filter((path) => path.endsWith('node_modules/pg'));
    expect(copies).toEqual(['node_modules/pg']);
  });

  it('does what the README says', async (context) => {
    const project = projectOf('readme', context);
    const readme = await readFile(join(root, 'README.md'), 'utf8');
    const database = await createTestDatabase({ migrate: false });
    try {
      const env = { DATABASE_URL: database.url };
      const commands = shellLines(readme, 'npx postcommit').slice(0, 2);
      expect(commands).toEqual(['npx postcommit init', 'npx postcommit migrate']);
      for (const command of commands) {
        await run('npx', ['--no-install', ...command.split(' ').slice(1)], project, env);
      }
      await database.query('create table orders (id text primary key, total integer)');
      const snippets = [...readme.matchAll(/```ts\n(.*?)```/gs)].map(([, code = '']) => code);
      expect(snippets.length).toBeGreaterThanOrEqual(5);
      for (const [index, code] of snippets.entries()) {
        const file = `snippet-${index}.ts`;
        await writeFile(join(project, file), toProgram(code, index));
        const output = await run(process.execPath, ['--import', tsx, file], project, env);
        if (/relay\.start/.test(code)) expect(output.match(/^indexing/gm)).toHaveLength(3);
      }
      for (const [, sql = ''] of readme.matchAll(/```sql\n(.*?)```/gs)) await database.query(sql);
      const status = await database.query<{ status: string }>(
        'select status from postcommit.outbox_status order by seq',
      );
      expect(status.slice(0, 3)).toEqual(Array.from({ length: 3 }, () => ({ status: 'SENT' })));
    } finally {
      await database.close();
    }
  });
});

/** Connects every publisher, and prints what refuses. Nothing is sent: the client's package is loaded first. */
const connectAll = `
  import { kafka } from 'postcommit/kafka';
  import { nats } from 'postcommit/nats';
  import { rabbitmq } from 'postcommit/rabbitmq';
  import { redis } from 'postcommit/redis';
  const publishers = [
    redis({ url: 'redis://127.0.0.1:1' }),
    rabbitmq({ url: 'amqp://127.0.0.1:1' }),
    kafka({ brokers: ['127.0.0.1:1'] }),
    nats({ servers: '127.0.0.1:1' }),
  ];
  for (const publisher of publishers) {
    await publisher.connect(new AbortController().signal).catch(({ code, detail }) => console.log(code + ': ' + detail));
  }
`;

/** The commands of a page's shell blocks that begin like this, without their comments. */
function shellLines(page: string, beginning: string): string[] {
  const blocks = [...page.matchAll(/```sh\n(.*?)```/gs)].map(([, code = '']) => code);
  const lines = blocks.flatMap((code) => code.split('\n')).map((line) => line.replace(/\s*#.*$/, ''));
  return lines.filter((line) => line.startsWith(beginning));
}

/** A snippet as a program: with what it takes for granted before it, and with an end. */
function toProgram(code: string, index: number): string {
  const lines: string[] = [];
  if (/\boutbox\b/.test(code) && !/const outbox\b/.test(code)) {
    lines.push(
      `import pg from 'pg';`,
      `import { createOutbox, fromPg } from 'postcommit';`,
      `const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });`,
      `const outbox = createOutbox({ db: fromPg(pool) });`,
    );
  }
  if (/\border\./.test(code) && !/const order\b/.test(code))
    lines.push(`const order = { id: 'snippet-${index}', total: 99 };`);
  if (/relay\.start/.test(code)) {
    // SIGTERM comes when both handlers have had the three events before.
    lines.push(
      `let handled = 0;`,
      `const { log } = console;`,
      `console.log = (...args) => { log(...args); if (++handled === 6) process.kill(process.pid, 'SIGTERM'); };`,
    );
  }
  const end = /const pool\b/.test(lines.join('\n') + code) ? 'await pool.end();' : '';
  return `${lines.join('\n')}\n${code}\n${end}\n`;
}
