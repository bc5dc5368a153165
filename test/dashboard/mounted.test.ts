import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createDashboard, type Dashboard, nodeListener, serveDashboard } from '../../src/dashboard/index.ts';
import { Scene } from '../admin/scene.ts';

let scene: Scene;
let server: Server;
let dashboard: Dashboard;
let url: string;

beforeAll(async () => {
  scene = await Scene.create();
  dashboard = createDashboard({ outboxes: { shop: scene.admin }, open: true, basePath: '/ops/postcommit' });
  server = createServer(nodeListener(dashboard));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  dashboard.close();
  server.close();
  server.closeAllConnections();
  await scene.close();
});

test('below a path it serves the app, whose addresses are relative, and the API', async () => {
  const moved = await fetch(`${url}/ops/postcommit`, { redirect: 'manual' });
  expect([moved.status, moved.headers.get('location')]).toEqual([308, '/ops/postcommit/']);
  const page = await fetch(`${url}/ops/postcommit/`);
  const html = await page.text();
  expect(html).not.toMatch(/(?:src|href)="(?:\/|https?:)/);
  expect(html).not.toMatch(/<style|<script>|style="|onclick/);
  const script = await fetch(`${url}/ops/postcommit/app.js`);
  expect([script.status, script.headers.get('content-encoding')]).toEqual([200, 'gzip']);
  expect((await fetch(`${url}/ops/postcommit/api/me`)).status).toBe(200);
  const search = await fetch(`${url}/ops/postcommit/api/shop/search`, {
    method: 'POST',
    headers: { 'x-postcommit-dashboard': '1' },
    body: '{}',
  });
  expect(await search.json()).toEqual({ events: [] });
});

test('other paths are not its own', async () => {
  for (const path of ['/', '/api/me', '/ops/postcommitted/', '/ops/postcommit/other.js', '/ops/postcommit/__proto__']) {
    expect((await fetch(`${url}${path}`)).status, path).toBe(404);
  }
});

test('options that cannot work are refused', async () => {
  const outboxes = { shop: scene.admin };
  expect(() => createDashboard({ outboxes, open: true, basePath: 'postcommit/' })).toThrow(
    'without a slash at its end',
  );
  expect(() => createDashboard({ outboxes, open: true, traceUrl: 'javascript:alert(1)//{traceId}' })).toThrow(
    'traceUrl',
  );
  await expect(serveDashboard({ outboxes, host: '0.0.0.0', port: 0 })).rejects.toMatchObject({
    code: 'POSTCOMMIT_E_DASHBOARD_NO_AUTH',
  });
});

test('an unexpected error is reported to the server, and the user learns only that there was one', async () => {
  const errors: unknown[] = [];
  const failing = Object.assign(Object.create(scene.admin), {
    search: () => Promise.reject(new Error('password hunter2')),
  });
  const own = createDashboard({ outboxes: { shop: failing }, open: true, onError: (error) => errors.push(error) });
  const request = new Request('http://localhost/api/shop/search', {
    method: 'POST',
    headers: { 'x-postcommit-dashboard': '1' },
    body: '{}',
  });
  const response = await own.fetch(request);
  expect([response.status, await response.text()]).toEqual([500, expect.not.stringContaining('hunter2')]);
  expect(errors).toMatchObject([{ message: 'password hunter2' }]);
  own.close();
});

test('close() ends live responses, so the server that it is mounted in can close', async () => {
  const own = createDashboard({ outboxes: { shop: scene.admin }, open: true });
  const response = await own.fetch(new Request('http://localhost/api/shop/live'));
  const reader = response.body?.getReader();
  expect(new TextDecoder().decode((await reader?.read())?.value)).toContain('data: ');
  own.close();
  expect(await reader?.read()).toMatchObject({ done: true });
});

test('a misspelt option is refused: it would protect nothing', async () => {
  const badOption = (detail: RegExp) =>
    expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringMatching(detail) });
  const create = (options: object) => () =>
    createDashboard({ outboxes: { shop: scene.admin }, open: true, ...options });
  expect(create({ readonly: true })).toThrow(
    badOption(/createDashboard\(\) has no option readonly\. Did you mean readOnly\?/),
  );
  expect(create({ redact: { payloads: ['email'] } })).toThrow(
    badOption(/redact has no option payloads\. Did you mean payload\?/),
  );
  expect(create({ redact: ['email'] })).toThrow(badOption(/redact must be an object/));
  expect(create({ redact: { payload: 'email' } })).toThrow(badOption(/redact\.payload must be an array/));
  const serve = (options: object) => serveDashboard({ outboxes: { shop: scene.admin }, port: 0, ...options });
  await expect(serve({ tokens: 'x' })).rejects.toEqual(badOption(/serveDashboard\(\) has no option tokens/));
  await expect(serve({ open: false })).rejects.toEqual(badOption(/serveDashboard\(\) has no option open/));
});
