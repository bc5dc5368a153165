import { execFile, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { choosePort } from '../../services/ports.ts';
import { identify } from '../../services/process-identity.ts';
import { services } from '../../services/registry.ts';

const main = fileURLToPath(new URL('../../services/main.ts', import.meta.url));
const tsx = import.meta.resolve('tsx');
const variables = Object.values(services).map(({ variable }) => variable);

let folder: string;

interface Run {
  code: number;
  stdout: string;
  stderr: string;
}

/** Its records are in a temporary folder of the test's, so that it never meets the servers of the developer. */
function run(args: string[], env: Record<string, string | undefined> = {}): Promise<Run> {
  const without = Object.fromEntries([...variables, 'CI', 'NODE_OPTIONS'].map((name) => [name, undefined]));
  const options = { env: { ...process.env, ...without, TMPDIR: folder, ...env } };
  return new Promise((resolve) => {
    execFile(process.execPath, ['--import', tsx, main, ...args], options, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : error ? -1 : 0, stdout, stderr });
    });
  });
}

const runFolder = () => join(folder, `postcommit-services-${process.getuid?.()}`);

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'postcommit-shared-'));
});

afterEach(async () => {
  await run(['down']);
  await rm(folder, { recursive: true, force: true });
});

// sqs: it comes with npm install, so these tests need nothing of the machine.
describe('npm run services', () => {
  test('up starts a service once for all callers, and down leaves nothing', async () => {
    const [first, second] = await Promise.all([run(['up', 'sqs', '--json']), run(['up', 'sqs', '--json'])]);
    const results = [first, second].map(({ stdout }) => JSON.parse(stdout));
    expect(results.map(({ services: [sqs] }) => sqs.outcome).sort()).toEqual(['running', 'started']);
    const { SQS_ENDPOINT } = results[0].env;
    expect(results[1].env).toEqual({ SQS_ENDPOINT });
    await services.sqs.check({ SQS_ENDPOINT });

    const plain = await run(['up', 'sqs']);
    expect(plain).toMatchObject({ code: 0, stdout: `SQS_ENDPOINT=${SQS_ENDPOINT}\n` });
    const [status] = JSON.parse((await run(['status', 'sqs', '--json'])).stdout).services;
    expect(status).toMatchObject({ name: 'sqs', state: 'running', env: { SQS_ENDPOINT } });

    expect((await run(['down', 'sqs'])).stdout).toBe('sqs: stopped\n');
    await expect(services.sqs.check({ SQS_ENDPOINT })).rejects.toThrow();
    expect(await identify(status.pid)).toBeUndefined();
    expect(await readdir(runFolder())).toEqual([]);
    expect((await run(['down', 'sqs'])).stdout).toBe('sqs: was not running\n');
  });

  test('up starts another when the one it knew has crashed', async () => {
    const pid = async () => JSON.parse((await run(['status', 'sqs', '--json'])).stdout).services[0].pid;
    await run(['up', 'sqs']);
    const crashed = await pid();
    process.kill(crashed, 'SIGKILL');
    expect((await run(['up', 'sqs'])).stderr).toMatch(/started/);
    expect(await pid()).not.toBe(crashed);
  });

  test('up leaves a port that another process uses alone', async () => {
    const occupant = createServer();
    // Another process may use it already, which serves as well.
    await new Promise<void>((resolve) => {
      occupant.once('error', () => resolve());
      occupant.listen(services.sqs.ports.client, '127.0.0.1', resolve);
    });
    try {
      const { env } = JSON.parse((await run(['up', 'sqs', '--json'])).stdout);
      expect(env.SQS_ENDPOINT).not.toBe(`http://127.0.0.1:${services.sqs.ports.client}`);
      await services.sqs.check(env);
    } finally {
      occupant.close();
    }
  });

  test('down does not end a process that got the number of one it started', async () => {
    await run(['up', 'sqs']);
    const file = join(runFolder(), 'sqs.json');
    const record = JSON.parse(await readFile(file, 'utf8'));
    process.kill(record.pid, 'SIGKILL');
    const innocent = spawn('sleep', ['60'], { detached: true });
    const { pid = -1 } = innocent;
    try {
      await writeFile(file, JSON.stringify({ ...record, pid }));
      expect((await run(['down'])).stdout).toContain('sqs: was not running');
      expect(await identify(pid)).toBeDefined();
    } finally {
      innocent.kill();
    }
  });

  test('up uses a server that a variable points at, and fails when it does not work', async () => {
    const { env } = JSON.parse((await run(['up', 'sqs', '--json'])).stdout);
    const given = JSON.parse((await run(['up', 'sqs', '--json'], env)).stdout);
    expect(given).toMatchObject({ env, services: [{ outcome: 'given' }] });
    const nowhere = `http://127.0.0.1:${await choosePort()}`;
    const wrong = await run(['up', 'sqs'], { SQS_ENDPOINT: nowhere });
    expect(wrong).toMatchObject({ code: 1, stdout: '' });
    expect(wrong.stderr).toMatch(/SQS_ENDPOINT=\S+ does not work: .*ECONNREFUSED.*Unset/);
  });

  test('what the machine cannot have is named, and fails with CI=true', async () => {
    const PATH = join(folder, 'bin');
    await mkdir(PATH);
    await writeFile(join(PATH, 'java'), '#!/bin/sh\necho \'openjdk version "11.0.2"\'\n', { mode: 0o755 });
    const bare = { PATH, JAVA_HOME: undefined };
    const here = await run(['up', 'kafka'], bare);
    expect(here).toMatchObject({ code: 0, stdout: '' });
    expect(here.stderr).toMatch(/^kafka: unavailable: Apache Kafka needs Java 17.* is Java 11\b.*KAFKA_BROKERS/);
    const ci = await run(['up', 'kafka', '--json'], { ...bare, CI: 'true' });
    expect(ci.code).toBe(1);
    expect(JSON.parse(ci.stdout)).toMatchObject({ env: {}, services: [{ name: 'kafka', outcome: 'unavailable' }] });
  });

  test('wrong usage is refused', async () => {
    for (const args of [['up', 'rabit'], ['upp'], [], ['up', '--jsn']]) {
      const { code, stdout, stderr } = await run(args);
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
      expect(stderr).toMatch(/There is no|missing|Unknown option/);
    }
    expect(await readdir(folder).then((names) => names.filter((name) => name.startsWith('postcommit')))).toEqual([]);
  });
});
