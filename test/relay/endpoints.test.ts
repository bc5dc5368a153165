import { expect, test } from 'vitest';
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
