import { type AddressInfo, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { within } from '../support/wait.ts';
import { runHere } from './fake-terminal.ts';
import { jsonError, projectFolder, spawnCli } from './run-cli.ts';

const token = 'operator-token-0123456789';
let db: TestDatabase;

beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.close());

/** Starts a command that serves the dashboard. Its first lines are searched for the address. */
async function serve(args: string[], { cwd, env = {} }: { cwd?: string; env?: Record<string, string> } = {}) {
  const child = spawnCli(args, { ...(cwd && { cwd }), env: { DATABASE_URL: db.url, ...env } });
  onTestFinished(() => void child.kill('SIGKILL'));
  const exited = new Promise<number | null>((resolve) => child.once('close', resolve));
  const found = new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) => {
      const [url] = /http:\/\/[\d.]+:\d+/.exec(line) ?? [];
      if (url) resolve(url);
    });
    void exited.then((code) => reject(new Error(`it ended with the code ${code}`)));
  });
  const url = await within(found, { timeoutMs: 30_000, what: 'it has written the address' });
  const stop = () => {
    child.kill('SIGTERM');
    return within(exited, { timeoutMs: 20_000, what: 'it has ended' });
  };
  return { url, stop };
}

it('refuses an address that others can reach, unless it has a token', async () => {
  const env = { DATABASE_URL: db.url };
  const refused = await runHere(['dashboard', '--host', '0.0.0.0', '--port', '0', '--json'], { env });
  expect([refused.code, jsonError(refused).code]).toEqual([2, 'POSTCOMMIT_E_DASHBOARD_NO_AUTH']);
  const short = await runHere(['dashboard', '--port', '0', '--json'], {
    env: { ...env, POSTCOMMIT_DASHBOARD_TOKEN: 'short' },
  });
  expect([short.code, jsonError(short).code]).toEqual([2, 'POSTCOMMIT_E_BAD_OPTION']);
});

it('names the flag that takes another port when one is taken', async () => {
  const taken = createServer();
  onTestFinished(() => void taken.close());
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  const port = String((taken.address() as AddressInfo).port);
  const refused = await runHere(['dashboard', '--port', port, '--json'], { env: { DATABASE_URL: db.url } });
  expect(jsonError(refused)).toMatchObject({
    code: 'POSTCOMMIT_E_CANNOT_LISTEN',
    message: expect.stringMatching(/ --port 0 takes a free one\.$/),
  });
});

it('gives no advice about ports when the address is not of this machine', async () => {
  const refused = await runHere(['dashboard', '--host', '192.0.2.1', '--port', '0', '--json'], {
    env: { DATABASE_URL: db.url, POSTCOMMIT_DASHBOARD_TOKEN: 'a token of sixteen characters or more' },
  });
  const { code, message } = jsonError(refused);
  expect(code).toBe('POSTCOMMIT_E_CANNOT_LISTEN');
  expect(message).toContain('EADDRNOTAVAIL');
  expect(message).not.toContain('--port');
});

it('serves the app and its API until it is stopped', async () => {
  const { url, stop } = await serve(['dashboard', '--port', '0', '--operator', 'ann']);
  const page = await fetch(`${url}/`);
  expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
  expect(await page.text()).toContain('<script type="module" src="app.js">');
  expect(await (await fetch(`${url}/api/me`)).json()).toMatchObject({
    by: 'ann',
    role: 'operator',
    outboxes: ['postcommit'],
  });
  expect(await stop()).toBe(0);
});

it('takes tokens from the environment, also on all addresses', async () => {
  const env = { POSTCOMMIT_DASHBOARD_TOKEN: token };
  const { url, stop } = await serve(['dashboard', '--host', '0.0.0.0', '--port', '0', '--read-only'], { env });
  const api = url.replace('0.0.0.0', '127.0.0.1');
  expect((await fetch(`${api}/api/me`)).status).toBe(401);
  const me = await fetch(`${api}/api/me`, { headers: { authorization: `Bearer ${token}` } });
  expect(await me.json()).toMatchObject({ role: 'reader' });
  expect(await stop()).toBe(0);
});

it('runs beside a relay', async () => {
  const config = "export default { handlers: { 'order.created': { work: async () => {} } } };";
  const cwd = projectFolder({ 'postcommit.config.mjs': config });
  const { url, stop } = await serve(['relay', '--dashboard', '0'], { cwd });
  expect((await fetch(`${url}/api/me`)).status).toBe(200);
  expect(await stop()).toBe(0);
});
