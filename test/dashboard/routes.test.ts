import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { OutboxAdmin } from '../../src/admin/admin.ts';
import type { ReplayOptions } from '../../src/admin/bulk.ts';
import type { ReplayTarget } from '../../src/admin/filters.ts';
import { createDashboard, type Dashboard, type DashboardOptions } from '../../src/dashboard/dashboard.ts';
import { requestHeader } from '../../src/dashboard/refusals.ts';
import { routes } from '../../src/dashboard/routes.ts';
import { Scene } from '../admin/scene.ts';
import { until } from '../support/wait.ts';

const token = 'operator-token-0123456789';
const readOnlyToken = 'reader-token-0123456789';

let scene: Scene;
let id: string;
const dashboards: Dashboard[] = [];

function dashboardWith(options: Partial<DashboardOptions> = { token, readOnlyToken }): Dashboard {
  const dashboard = createDashboard({ outboxes: { shop: scene.admin }, ...options });
  dashboards.push(dashboard);
  return dashboard;
}

beforeAll(async () => {
  scene = await Scene.create();
  id = await scene.emitOne({ payload: { does: 'reject', card: { number: '4711' } } as object });
  await scene.relay();
  await scene.untilStatus('FAILED', 1);
});
afterAll(async () => {
  for (const dashboard of dashboards) dashboard.close();
  await scene.close();
});

interface Sent {
  method?: string;
  bearer?: string;
  body?: unknown;
  headers?: Record<string, string>;
  address?: string;
}

async function send(dashboard: Dashboard, path: string, { method = 'POST', bearer, body = {}, ...rest }: Sent = {}) {
  const headers = {
    [requestHeader]: '1',
    host: 'localhost:4000',
    ...(bearer && { authorization: `Bearer ${bearer}` }),
    ...rest.headers,
  };
  const request = new Request(`http://localhost:4000/api${path}`, {
    method,
    headers,
    ...(method === 'POST' && { body: JSON.stringify(body) }),
  });
  const response = await dashboard.fetch(request, { incoming: { socket: { remoteAddress: rest.address } } });
  // biome-ignore lint/suspicious/noExplicitAny: a test knows the fields of the answer it asked for.
  const json = (await response.json()) as any;
  return { status: response.status, headers: response.headers, json };
}

describe.each(routes.map((route) => [`${route.method} ${route.path}`, route] as const))('%s', (_name, route) => {
  const path = `/shop${route.path.replace(':id', '1')}`;

  test('needs a token', async () => {
    const dashboard = dashboardWith();
    expect((await send(dashboard, path, { method: route.method })).status).toBe(401);
    expect((await send(dashboard, path, { method: route.method, bearer: 'wrong-token-0123456789' })).status).toBe(401);
  });

  if (!route.changes) return;

  test('is forbidden for readers, in read-only mode, and for other sites', async () => {
    const before = (await scene.admin.audit()).operations.length;
    const dashboard = dashboardWith();
    expect(await send(dashboard, path, { bearer: readOnlyToken })).toMatchObject({
      status: 403,
      json: { error: { code: 'READ_ONLY' } },
    });
    const readOnly = dashboardWith({ token, readOnly: true });
    expect((await send(readOnly, path, { bearer: token })).status).toBe(403);
    const foreign = { bearer: token, headers: { 'sec-fetch-site': 'cross-site' } };
    expect((await send(dashboard, path, foreign)).json.error.code).toBe('FOREIGN_REQUEST');
    const request = new Request(`http://localhost/api${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}` },
      body: '{}',
    });
    expect((await dashboard.fetch(request)).status).toBe(403);
    expect((await scene.admin.audit()).operations.length).toBe(before);
  });
});

test('does not start without authentication, with a short token, or with two equal ones', () => {
  expect(() => dashboardWith({})).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_DASHBOARD_NO_AUTH' }));
  expect(() => dashboardWith({ token: 'short' })).toThrow('at least 16 characters');
  expect(() => dashboardWith({ token, readOnlyToken: token })).toThrow('must differ');
});

test('an open dashboard answers only for local host names', async () => {
  const dashboard = dashboardWith({ open: true });
  expect((await send(dashboard, '/me', { method: 'GET' })).status).toBe(200);
  expect((await send(dashboard, '/me', { method: 'GET', headers: { host: 'evil.example' } })).status).toBe(403);
});

test('a token that is guessed a thousand times is soon not even compared, for that address only', async () => {
  const dashboard = dashboardWith();
  const statuses: number[] = [];
  for (let i = 0; i < 1_000; i++) {
    const guess = { method: 'GET', bearer: `guess-number-${i}-000000`, address: '10.0.0.1' };
    statuses.push((await send(dashboard, '/me', guess)).status);
  }
  expect(statuses.filter((status) => status === 401)).toHaveLength(10);
  expect(statuses.filter((status) => status === 429)).toHaveLength(990);
  const right = { method: 'GET', bearer: token };
  expect((await send(dashboard, '/me', { ...right, address: '10.0.0.1' })).status).toBe(429);
  expect((await send(dashboard, '/me', { ...right, address: '10.0.0.2' })).status).toBe(200);
});

test('without an address all clients count as one, and an own server can pass the address', async () => {
  const dashboard = dashboardWith();
  const me = (bearer: string, connection?: { remoteAddress: string }) => {
    const headers = { authorization: `Bearer ${bearer}` };
    return dashboard.fetch(new Request('http://localhost/api/me', { headers }), connection);
  };
  const guess = async (count: number, connection?: { remoteAddress: string }) => {
    for (let i = 0; i < count; i++) await me(`guess-number-${i}-000000`, connection);
  };
  await guess(10, { remoteAddress: '203.0.113.7' });
  expect((await me(token, { remoteAddress: '203.0.113.7' })).status).toBe(429);
  expect((await me(token, { remoteAddress: '203.0.113.8' })).status).toBe(200);
  await guess(99);
  expect((await me(token)).status).toBe(200);
  await guess(1);
  expect((await me(token)).status).toBe(429);
});

describe('behind a proxy', () => {
  const forwarded = { 'x-forwarded-proto': 'https', 'x-forwarded-for': '198.51.100.9, 203.0.113.7' };
  const signIn = (dashboard: Dashboard, headers: Record<string, string> = forwarded) =>
    send(dashboard, '/session', { body: { token }, headers, address: '10.0.0.1' });
  const lock = async (dashboard: Dashboard, forwardedFor: string) => {
    const headers = { ...forwarded, 'x-forwarded-for': forwardedFor };
    const guess = { body: { token: 'wrong-token-0123456789' }, headers, address: '10.0.0.1' };
    for (let i = 0; i < 10; i++) await send(dashboard, '/session', guess);
  };
  const statusFor = async (dashboard: Dashboard, forwardedFor: string) =>
    (await signIn(dashboard, { ...forwarded, 'x-forwarded-for': forwardedFor })).status;

  test('that is trusted, the cookie is Secure, and wrong tokens count for the address that it appended', async () => {
    const dashboard = dashboardWith({ token, trustedProxies: 1 });
    expect((await signIn(dashboard)).headers.get('set-cookie')).toContain('; Secure');
    const end = await send(dashboard, '/session/end', { headers: forwarded });
    expect(end.headers.get('set-cookie')).toContain('; Secure');
    expect((await signIn(dashboard, {})).headers.get('set-cookie')).not.toContain('Secure');
    // The client chose the first address, the proxy appended the second one.
    await lock(dashboard, '198.51.100.9, 203.0.113.7');
    expect(await statusFor(dashboard, '203.0.113.7')).toBe(429);
    expect(await statusFor(dashboard, '192.0.2.1, 203.0.113.7:5050')).toBe(429);
    expect(await statusFor(dashboard, '203.0.113.7, 198.51.100.9')).toBe(200);
    await lock(dashboard, '[2001:db8::7]:5050');
    expect(await statusFor(dashboard, '2001:db8::7')).toBe(429);
    const two = dashboardWith({ token, trustedProxies: 2 });
    await lock(two, '192.0.2.1, 203.0.113.7, 10.0.0.5');
    expect(await statusFor(two, '203.0.113.7, 10.0.0.6')).toBe(429);
    expect(await statusFor(two, 'unknown')).toBe(200);
  });

  test('that is not trusted, its headers are ignored', async () => {
    const dashboard = dashboardWith({ token });
    expect((await signIn(dashboard)).headers.get('set-cookie')).not.toContain('Secure');
    await lock(dashboard, '198.51.100.9');
    expect(await statusFor(dashboard, '198.51.100.10')).toBe(429);
    expect(() => dashboardWith({ token, trustedProxies: -1 })).toThrow('trustedProxies must be');
    expect(() => dashboardWith({ token, trustedProxies: true as never })).toThrow('trustedProxies must be');
  });
});

test('a browser signs in once, and its session ends with a changed token', async () => {
  const dashboard = dashboardWith();
  const wrong = await send(dashboard, '/session', { body: { token: 'wrong-token-0123456789' } });
  expect(wrong.status).toBe(401);
  const { status, headers } = await send(dashboard, '/session', { body: { token: readOnlyToken } });
  expect(status).toBe(200);
  const cookie = headers.get('set-cookie') ?? '';
  expect(cookie).toMatch(/; HttpOnly; SameSite=Strict/);
  const session = { method: 'GET', headers: { cookie: cookie.split(';')[0] as string } };
  expect((await send(dashboard, '/me', session)).json).toMatchObject({ role: 'reader' });
  const forged = { method: 'GET', headers: { cookie: session.headers.cookie.replace('reader', 'operator') } };
  expect((await send(dashboard, '/me', forged)).status).toBe(401);
  const changed = dashboardWith({ token, readOnlyToken: 'another-reader-token-01' });
  expect((await send(changed, '/me', session)).status).toBe(401);
});

test('payloads are redacted, and a redacted payload cannot be edited', async () => {
  const dashboard = dashboardWith({ token, redact: { payload: ['card.*'] } });
  const { json } = await send(dashboard, `/shop/events/${id}`, { method: 'GET', bearer: token });
  expect(json.payload.redacted).toBe(true);
  expect(JSON.stringify(json)).not.toContain('4711');
  const edit = { bearer: token, body: { payload: {} } };
  expect(await send(dashboard, `/shop/events/${id}/edit-and-retry`, edit)).toMatchObject({
    status: 409,
    json: { error: { code: 'POSTCOMMIT_E_PAYLOAD_REDACTED' } },
  });
});

test('a dead letter is found, counted and discarded by an operator, with a reason', async () => {
  const dashboard = dashboardWith();
  const call = (path: string, body: unknown) => send(dashboard, `/shop${path}`, { bearer: token, body });
  expect((await call('/search', { status: 'FAILED', error: 'scripted' })).json.events).toMatchObject([{ id }]);
  expect((await call('/dead-letters/count', { ids: [id] })).json).toMatchObject({ count: 1 });
  const { json } = await call('/dead-letters/discard', { target: { ids: [id] }, reason: 'test data' });
  await until(
    async () => {
      const found = await send(dashboard, `/shop/operations/${json.id}`, { method: 'GET', bearer: token });
      return found.json.state === 'done' && found.json.count === 1;
    },
    { what: 'the dead letter is discarded' },
  );
  expect((await scene.admin.audit()).operations[0]).toMatchObject({ by: 'dashboard operator', reason: 'test data' });
});

test('a replay that fails on its way says where it continues, and foreign text stays on the server', async () => {
  const own = await Scene.create();
  const errors: unknown[] = [];
  try {
    await own.emit([{ aggregate: ['order', '1'] }]);
    await own.relay();
    await own.untilStatus('SENT', 1);
    const failing: OutboxAdmin = Object.assign(Object.create(own.admin), {
      as: () => failing,
      replay: (target: ReplayTarget, options: ReplayOptions) => {
        if (options.after !== undefined) return own.admin.replay(target, options);
        const fail = () => {
          throw new Error('password hunter2');
        };
        return own.admin.replay(target, { ...options, onProgress: fail });
      },
    });
    const dashboard = dashboardWith({ token, outboxes: { shop: failing }, onError: (error) => errors.push(error) });
    const replay = async (body: object) => {
      const { json } = await send(dashboard, '/shop/events/replay', { bearer: token, body });
      return until(
        async () => {
          const read = await send(dashboard, `/shop/operations/${json.id}`, { method: 'GET', bearer: token });
          return read.json.state === 'running' ? undefined : read.json;
        },
        { what: 'the replay has ended' },
      );
    };
    const failed = await replay({ target: { all: true } });
    expect(failed).toMatchObject({
      state: 'failed',
      next: expect.any(String),
      error: { code: 'POSTCOMMIT_E_REPLAY_INCOMPLETE' },
    });
    expect(failed.error.message).toContain(
      `1 event replayed, continue after ${failed.next}. The log of the server has the error.`,
    );
    expect(failed.error.message).not.toContain('hunter2');
    expect(errors).toMatchObject([{ code: 'POSTCOMMIT_E_REPLAY_INCOMPLETE', cause: { message: 'password hunter2' } }]);
    // Delivered in the meantime: without `after` it would be replayed once more.
    await own.untilStatus('SENT', 1);
    expect(await replay({ target: { all: true }, after: failed.next })).toMatchObject({ state: 'done', count: 0 });
  } finally {
    await own.close();
  }
});

test('an interrupted replay says where it continues', async () => {
  const admin: OutboxAdmin = Object.assign(Object.create(scene.admin), {
    as: () => admin,
    replay: (target: ReplayTarget) => scene.admin.replay(target, { signal: AbortSignal.abort() }),
  });
  const dashboard = dashboardWith({ token, outboxes: { shop: admin } });
  const { json } = await send(dashboard, '/shop/events/replay', { bearer: token, body: { target: { all: true } } });
  const read = async () =>
    (await send(dashboard, `/shop/operations/${json.id}`, { method: 'GET', bearer: token })).json;
  await until(async () => (await read()).state === 'interrupted', { what: 'the replay is interrupted' });
  expect(await read()).toMatchObject({ count: 0, next: expect.any(String) });
});

test('what is invalid is 400, and every response forbids foreign content', async () => {
  const dashboard = dashboardWith();
  const response = await send(dashboard, '/shop/search', { bearer: token, body: { colour: 'red' } });
  expect(response).toMatchObject({ status: 400, json: { error: { code: 'POSTCOMMIT_E_BAD_FILTER' } } });
  expect(response.headers.get('content-security-policy')).toContain("default-src 'none'");
  expect((await send(dashboard, '/other/search', { bearer: token })).status).toBe(404);
});

test('viewers get the state of the outbox', async () => {
  const dashboard = dashboardWith();
  const request = new Request('http://localhost/api/shop/live', { headers: { authorization: `Bearer ${token}` } });
  const reader = (await dashboard.fetch(request)).body?.getReader();
  const text = new TextDecoder().decode((await reader?.read())?.value);
  expect(JSON.parse(text.replace(/^data: /, '')).overview).toMatchObject({
    health: { level: expect.any(String) },
    counts: { pending: 0 },
    relays: [{ name: 'tester', state: 'alive' }],
  });
  await reader?.cancel();
});

test('a header that is redacted cannot be searched by', async () => {
  const dashboard = dashboardWith({ token, redact: { headers: ['Tenant'] } });
  const search = (name: string) => send(dashboard, '/shop/search', { bearer: token, body: { header: [name, 'acme'] } });
  expect((await search('tenant')).status).toBe(400);
  expect((await search('region')).status).toBe(200);
});

test('without a token no body is read but a short one', async () => {
  const dashboard = dashboardWith();
  let pulled = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      pulled += 65_536;
      if (pulled > 4_194_304) controller.close();
      else controller.enqueue(new Uint8Array(65_536));
    },
  });
  const headers = { [requestHeader]: '1' };
  const post = (path: string, init: object) =>
    dashboard.fetch(new Request(`http://localhost${path}`, { method: 'POST', headers, ...init }));
  expect((await post('/api/shop/search', { body, duplex: 'half' })).status).toBe(401);
  expect(pulled).toBeLessThan(262_144);
  expect((await post('/api/session', { body: JSON.stringify({ token: 'x'.repeat(5_000) }) })).status).toBe(413);
});
