import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startService } from '../../services/private-service.ts';
import { services } from '../../services/registry.ts';
import { fileService } from './services.ts';

// With settings, though none: so it is private also where SQS_ENDPOINT points at a server.
const sqs = fileService('sqs', { settings: {} });
const urlAtCollection = urlOrError();
const answers = () => services.sqs.check(sqs.env).then(() => true);

describe('the server of a file', () => {
  let before = false;

  beforeAll(async () => {
    before = await answers();
  });
  afterAll(async () => {
    expect(await answers()).toBe(true);
  });

  it('is there in hooks and tests, and can be stopped', async () => {
    expect(before).toBe(true);
    const { outage } = sqs.disturbances;
    await outage?.stop();
    await expect(answers()).rejects.toThrow();
    await outage?.start();
    expect(await answers()).toBe(true);
    expect(sqs.url).toBe(sqs.own.url);
  });

  it('is not there while tests are collected', () => {
    expect(urlAtCollection).toMatch(/not started yet: use it in a hook or a test/);
    expect(sqs.given).toBe(false);
  });
});

describe('a server that an environment variable points at', () => {
  it('is used, and never stopped', async (context) => {
    const somebodys = await startService('sqs');
    context.onTestFinished(() => somebodys.remove());
    const { output } = await runFixture('given-service', { SQS_ENDPOINT: somebodys.url });
    expect(output).toMatch(/servers: SQS\/SNS \(fauxqs\) \(given: never stopped or frozen\)\n1 passed, 0 failed\n/);
    await services.sqs.check(somebodys.env);
  });

  it('fails the tests when it does not answer', async () => {
    const { code, output } = await runFixture('given-service', { SQS_ENDPOINT: 'http://127.0.0.1:1' });
    expect(output).toMatch(/0 passed, 1 failed, 1 skipped\n/);
    expect(code).toBe(1);
  });
});

describe('a server that the machine cannot have', () => {
  it('skips the tests and their hooks, and is named in the summary', async () => {
    const { code, output } = await runFixture('missing-service', {});
    expect(output).toMatch(/servers: no Redis \(there is none for this machine\)\n0 passed, 0 failed, 2 skipped\n/);
    expect(code).toBe(0);
  });

  it('fails the tests with CI=true', async () => {
    const { code, output } = await runFixture('missing-service', { CI: 'true' });
    expect(output).toMatch(/0 passed, 1 failed, 2 skipped\n/);
    expect(code).toBe(1);
  });
});

function urlOrError(): string {
  try {
    return sqs.url;
  } catch (error) {
    return String(error);
  }
}

function runFixture(name: string, env: Record<string, string>): Promise<{ code: number; output: string }> {
  const vitest = fileURLToPath(import.meta.resolve('vitest/package.json').replace(/package\.json$/, 'vitest.mjs'));
  const config = fileURLToPath(new URL('fixture.config.ts', import.meta.url));
  const own = Object.entries(process.env).filter(
    ([key]) => !/^(VITEST|CI$|POSTCOMMIT_TEST|NODE_ENV$|REDIS_URL)/.test(key),
  );
  const options = { env: { ...Object.fromEntries(own), NO_COLOR: '1', ...env } };
  return new Promise((resolve) => {
    execFile(process.execPath, [vitest, 'run', '--config', config, name], options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), output: `${stdout}${stderr}` });
    });
  });
}
