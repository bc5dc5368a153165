import { execFile, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { beforeAll, describe, expect, inject, it, type TestContext } from 'vitest';
import { installPackages } from '../../scripts/private-packages.ts';
import { services } from '../../services/registry.ts';
import { NotAvailable, type ServiceName } from '../../services/service.ts';
import { fileService } from '../support/services.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** Every example, and the broker it needs. */
const examples: Record<string, ServiceName | undefined> = {
  'express-pg-webhooks': undefined,
  'fastify-drizzle-rabbitmq': 'rabbitmq',
  'orders-to-kafka': 'kafka',
};
/** Examples with a story of their own, and a test below. */
const others = ['nestjs-prisma-kafka', 'payment-ledger', 'reports'];
const rabbitMq = fileService('rabbitmq');
const timeoutMs = 240_000;
/** Those with packages of their own. */
const withPackages = Object.keys(examples).filter((name) => existsSync(join(root, 'examples', name, 'package.json')));

/** Runs it as `npm run example` does, with the variables of the environment but for those given here. */
function runExample(name: string, env: Record<string, string | undefined>) {
  const child = spawn(process.execPath, ['--import', 'tsx', 'examples/run.ts', name], {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const endWithTest = () => child.kill('SIGKILL');
  process.once('exit', endWithTest);
  const output = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream].setEncoding('utf8').on('data', (text) => {
      output[stream] += text;
    });
  }
  return new Promise<{ code: number | null; lines: string[]; stderr: string }>((ended) => {
    child.once('close', (code) => {
      process.removeListener('exit', endWithTest);
      ended({ code, lines: output.stdout.split('\n').filter(Boolean), stderr: output.stderr });
    });
  });
}

/** An example cannot start what this machine cannot have. */
async function requireService(name: ServiceName, context: TestContext): Promise<void> {
  if (process.env[services[name].variable]) return;
  try {
    await services[name].install(() => {});
  } catch (error) {
    if (!(error instanceof NotAvailable) || process.env.CI === 'true') throw error;
    context.skip(error.message);
  }
}

/** Checks the lines of an example: every event once, in order per order id, and a redelivery recognised. */
function expectWholeStory({ code, lines, stderr }: Awaited<ReturnType<typeof runExample>>): void {
  expect(stderr).toBe('');
  const billing = lines.filter((line) => line.startsWith('billing'));
  for (let order = 1; order <= 5; order++) {
    const received = billing.filter((line) => line.includes(`of order ${order}`)).map((line) => line.slice(9));
    const again = ' again: known by its id, ignored';
    const once = [`order.created of order ${order}`, `order.paid of order ${order}`];
    expect(received).toEqual(order === 1 ? [...once, ...once.map((line) => line + again)] : once);
  }
  expect(billing).toHaveLength(12);
  expect(lines).toContain('orders   5 committed, each placed and paid; one more was sold out and rolled back');
  expect(lines.at(-1)).toMatch(/^ok +all 10 events arrived/);
  expect(code).toBe(0);
}

async function databasesLeft(): Promise<string[]> {
  const client = new pg.Client({ connectionString: inject('serverUrl') });
  await client.connect();
  try {
    const { rows } = await client.query(
      `select datname from pg_database where datname like 'postcommit\\_example\\_%'`,
    );
    return rows.map(({ datname }) => datname);
  } finally {
    await client.end();
  }
}

describe('examples', () => {
  beforeAll(() => {
    for (const name of withPackages) installPackages(pathToFileURL(join(root, 'examples', name, '/')), 'an example');
  }, timeoutMs);

  for (const [name, broker] of Object.entries(examples)) {
    it(`${name} starts what it needs, and every committed event arrives`, { timeout: timeoutMs }, async (context) => {
      if (broker !== undefined) await requireService(broker, context);
      expectWholeStory(await runExample(name, { DATABASE_URL: undefined }));
    });
  }

  it('nestjs-prisma-kafka ends its application cleanly, too', { timeout: timeoutMs }, async (context) => {
    await requireService('kafka', context);
    installPackages(
      new URL('../../examples/nestjs-prisma-kafka/', import.meta.url),
      'Nest and Prisma for their example',
    );
    const ended = await runExample('nestjs-prisma-kafka', { DATABASE_URL: undefined });
    expectWholeStory({ ...ended, lines: ended.lines.slice(0, -1) });
    expect(ended.lines.at(-1)).toBe('receipts 5 of 1, 2, 3, 4, 5; the application stopped cleanly');
  });

  it('reports starts what it needs, and a crash and a race leave one report each', { timeout: timeoutMs }, async () => {
    const { code, lines, stderr } = await runExample('reports', { DATABASE_URL: undefined });
    // Relays log, as JSON, that a worker was killed and another one frozen. A stack would not be JSON.
    const logged = stderr
      .split('\n')
      .filter(Boolean)
      .map((each) => JSON.parse(each).message);
    expect(logged).toContain('another relay was lost, taking over its events');
    const line = (pattern: RegExp) => lines.map((each) => pattern.exec(each)).find((found) => found !== null) ?? [];
    const [, killed] = line(/^story +SIGKILL for (worker-\d) at day \d+ of 365 of the year's report$/);
    expect(killed).toBeDefined();
    expect(lines.some((each) => each.endsWith(`takes over from ${killed}`))).toBe(true);
    expect(lines).toContain('story    DELETE answered 200: a report that was being generated is cancelled');
    const [, raced, frozen] = line(/^story +two workers save report (\w+) at the same time: (worker-\d) was frozen/);
    const ends = lines.filter((each) => each.includes(`report ${raced}: `) && !each.includes('attempt'));
    expect(ends.map((each) => each.slice(26)).sort()).toEqual(['another worker has generated it', 'generated']);
    // The year's layout blocks its worker for longer than the lease, and only the frozen worker loses its own.
    expect(lines.filter((each) => each.includes('was taken for dead'))).toEqual([
      `${frozen} was taken for dead, and continues with a new lease`,
    ]);
    expect(lines).toContain('story    22 reports are ready: 22 generated, 0 twice, 22 mailed');
    expect(lines.at(-1)).toBe('ok       each report was generated once and mailed once');
    expect(code).toBe(0);
  });

  it('payment-ledger: both services are killed twice, and all agree to the cent', {
    timeout: timeoutMs,
  }, async (context) => {
    await requireService('kafka', context);
    const { code, lines, stderr } = await runExample('payment-ledger', { DATABASE_URL: undefined });
    // Relays say there that they took over from killed ones.
    const warnings = stderr.split('\n').filter((line) => line !== '');
    expect(warnings.filter((line) => !line.includes('another relay was lost'))).toEqual([]);
    for (const service of ['payments', 'accounts']) {
      expect(lines.filter((line) => line.startsWith(`story    SIGKILL for ${service} after `))).toHaveLength(2);
    }
    expect(lines).toContain('story    a payment over the limit was answered with 422 and rolled back');
    const repeated = lines.map((line) => /(\d+) by a replay: all of them were skipped$/.exec(line)?.[1]);
    expect(Number(repeated.find((count) => count !== undefined))).toBeGreaterThanOrEqual(40);
    // 400 payments and 58 refunds: the same amount in three places that share no transaction.
    const sums = lines.flatMap(
      (line) => /^(ledger|accounts|merchant) +(\d+\.\d\d) EUR in (\d+)/.exec(line)?.slice(1, 4) ?? [],
    );
    const [, amount] = sums;
    expect(sums).toEqual(['ledger', amount, '458', 'accounts', amount, '458', 'merchant', amount, '458']);
    expect(lines.at(-1)).toBe('ok       ledger, accounts and merchant agree to the cent for each of 10 accounts');
    expect(code).toBe(0);
  });

  it('servers that are given are used, and left as they were', { timeout: timeoutMs }, async () => {
    const ended = await runExample('fastify-drizzle-rabbitmq', { DATABASE_URL: inject('serverUrl'), ...rabbitMq.env });
    expectWholeStory(ended);
    expect(ended.lines[0]).toMatch(/^servers +the database postcommit_example_\w+ was created in DATABASE_URL$/);
    expect(ended.lines[1]).toBe('servers  RabbitMQ is the one of RABBITMQ_URL');
    expect(await databasesLeft()).toEqual([]);
  });

  it('one that cannot work says why, ends with a failure and leaves nothing', { timeout: timeoutMs }, async () => {
    const ended = await runExample('fastify-drizzle-rabbitmq', {
      DATABASE_URL: inject('serverUrl'),
      RABBITMQ_URL: 'amqp://127.0.0.1:1',
    });
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('ECONNREFUSED');
    expect(await databasesLeft()).toEqual([]);
  });

  it.each(withPackages)('%s compiles with the types of its packages', async (name) => {
    // The project's own tsconfig leaves it out: on a fresh clone they are not installed.
    const { exclude } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8'));
    expect(exclude).toContain(`examples/${name}`);
    const tsc = promisify(execFile)(join(root, 'node_modules/.bin/tsc'), ['-p', `examples/${name}`], { cwd: root });
    expect(
      await tsc.then(
        () => '',
        ({ stdout }) => stdout,
      ),
    ).toBe('');
  });

  it('every folder is run here, and imports only what the package exports', () => {
    const all = readdirSync(join(root, 'examples'), { recursive: true, encoding: 'utf8' });
    const files = all.filter((file) => !/(?:^|[\\/])(?:node_modules|dist|generated)[\\/]/.test(file));
    const folders = files.filter((file) => file.endsWith('main.ts')).map((file) => dirname(file));
    expect(folders.sort()).toEqual([...Object.keys(examples), ...others].sort());
    const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    for (const file of files.filter((each) => each.endsWith('.ts'))) {
      const code = readFileSync(join(root, 'examples', file), 'utf8');
      for (const [, specifier = ''] of code.matchAll(/from '(postcommit[^']*)'/g)) {
        expect(exports, `${file} imports ${specifier}`).toHaveProperty([specifier.replace('postcommit', '.')]);
      }
    }
  });
});
