import { expect, test } from 'vitest';
import type { RequestConnection } from '../../src/http/serve.ts';
import { readinessOf, relayEndpoints } from '../../src/relay/endpoints.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const local = { port: 0 };

async function get(url: string | undefined, path: string): Promise<[number, string]> {
  const response = await fetch(`${url}${path}`);
  return [response.status, await response.text()];
}

test(
  'a relay serves probes and metrics while it runs, and nothing after',
  withScenario(async (scenario) => {
    const relay = await scenario.relay('a', { http: local });
    const url = relay.httpUrl;
    expect(await get(url, '/livez')).toEqual([200, 'ok\n']);
    expect(await get(url, '/readyz')).toEqual([200, 'ok\n']);
    const response = await fetch(`${url}/metrics`);
    expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(await response.text()).toContain('outbox_relay_connected 1\n');
    expect((await get(url, '/'))[0]).toBe(404);
    expect((await fetch(`${url}/metrics`, { method: 'POST' })).status).toBe(405);
    await relay.stop();
    expect(relay.httpUrl).toBeUndefined();
    await expect(fetch(`${url}/livez`)).rejects.toThrow();
  }),
);

test(
  'without the database a relay is alive and not ready, and ready again after',
  withScenario(async (scenario) => {
    const proxy = await scenario.proxy();
    const relay = await scenario.relay('a', {
      http: local,
      connectionString: proxy.url(scenario.db.url),
      logger: false,
    });
    proxy.refuse();
    proxy.cut();
    await until(async () => (await get(relay.httpUrl, '/readyz'))[0] === 503, { what: 'it is not ready' });
    expect(await get(relay.httpUrl, '/readyz')).toEqual([503, 'the database is unreachable\n']);
    expect(await get(relay.httpUrl, '/livez')).toEqual([200, 'ok\n']);
    proxy.accept();
    await until(async () => (await get(relay.httpUrl, '/readyz'))[0] === 200, {
      what: 'it is ready',
      timeoutMs: 20_000,
    });
  }),
);

test(
  'a port that is taken fails the start, and the relay can start later',
  withScenario(async (scenario) => {
    const first = await scenario.relay('a', { http: local });
    const port = Number(new URL(first.httpUrl ?? '').port);
    const second = scenario.idleRelay('b', { http: { port } });
    await expect(second.start()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_CANNOT_LISTEN' });
    expect(second.stats().state).toBe('idle');
    await first.stop();
    await second.start();
    expect(await get(second.httpUrl, '/readyz')).toEqual([200, 'ok\n']);
  }),
);

test(
  'other paths go to the given handler, and a server of the application can use relay.fetch',
  withScenario(async (scenario) => {
    const fetchOther = () => new Response('dashboard');
    const relay = await scenario.relay('a', { http: { ...local, fetch: fetchOther } });
    expect(await get(relay.httpUrl, '/events')).toEqual([200, 'dashboard']);
    expect((await relay.fetch(new Request('http://x/readyz'))).status).toBe(200);
    await relay.stop();
    expect(await (await relay.fetch(new Request('http://x/readyz'))).text()).toBe('the relay is idle\n');
  }),
);

test(
  'the given handler learns the address of the client, from the server of the relay and through relay.fetch',
  withScenario(async (scenario) => {
    const seen: (string | undefined)[] = [];
    const fetchOther = (_request: Request, connection?: RequestConnection) => {
      seen.push(connection?.remoteAddress ?? connection?.incoming?.socket?.remoteAddress);
      return new Response('dashboard');
    };
    const relay = await scenario.relay('a', { http: { ...local, fetch: fetchOther } });
    await get(relay.httpUrl, '/events');
    await relay.fetch(new Request('http://x/events'), { remoteAddress: '203.0.113.7' });
    await relay.fetch(new Request('http://x/events'));
    expect(seen).toEqual(['127.0.0.1', '203.0.113.7', undefined]);
  }),
);

test('a relay that has lost its lease, or does not run, is not ready', async () => {
  const ready = { state: 'running', token: '7', connected: true };
  const answer = async (status: { state: string; token: string | undefined; connected: boolean }, path = '/readyz') => {
    const response = await relayEndpoints(() => readinessOf(status), undefined)(new Request(`http://x${path}`));
    expect(response.headers.get('cache-control')).toBe('no-store');
    return [response.status, await response.text()];
  };
  expect(await answer(ready)).toEqual([200, 'ok\n']);
  expect(await answer({ ...ready, token: undefined })).toEqual([503, expect.stringContaining('lost its lease')]);
  expect(await answer({ ...ready, connected: false })).toEqual([503, 'the database is unreachable\n']);
  for (const state of ['starting', 'stopping']) {
    expect(await answer({ ...ready, state })).toEqual([503, `the relay is ${state}\n`]);
    expect(await answer({ ...ready, state }, '/livez')).toEqual([200, 'ok\n']);
  }
  expect((await answer(ready, '/metrics'))[0]).toBe(404);
});

test('probes may use HEAD, and nothing else but GET', async () => {
  const endpoints = relayEndpoints(() => ({ ready: false, reason: 'the relay is idle' }), undefined);
  const status = async (method: string) => (await endpoints(new Request('http://x/readyz', { method }))).status;
  expect(await Promise.all(['GET', 'HEAD', 'POST', 'DELETE'].map(status))).toEqual([503, 503, 405, 405]);
});
