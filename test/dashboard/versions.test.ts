import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { createDashboard, type Dashboard } from '../../src/dashboard/dashboard.ts';
import { OverviewReader } from '../../src/dashboard/overview.ts';
import { requestHeader } from '../../src/dashboard/refusals.ts';
import { routes } from '../../src/dashboard/routes.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { pruneAudit } from '../../src/outbox/maintaining/prune-audit.ts';
import { Scene } from '../admin/scene.ts';
import { createTestDatabase } from '../support/database.ts';
import { postgresVersions, sharedVersion } from '../support/postgres-versions.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { recordServer } from '../support/servers-used.ts';
import { until } from '../support/wait.ts';

describe.each(postgresVersions)('the statements of the dashboard and the audit on PostgreSQL %i', (version) => {
  let server: EmbeddedPostgres | undefined;
  let scene: Scene;
  let dashboard: Dashboard;
  let sent = '';
  let dead: string[] = [];

  beforeAll(async () => {
    if (version !== sharedVersion) server = await startEmbeddedPostgres({ version });
    scene = new Scene(await createTestDatabase({ serverUrl: server?.connectionString ?? inject('serverUrl') }));
    const [{ server_version: found }] = await scene.db.query('show server_version');
    recordServer(`PostgreSQL ${found}`);
    dashboard = createDashboard({ outboxes: { shop: scene.admin }, open: true, by: 'ann' });
    await scene.relay({ destinations: { kafka: new ScriptedPublisher() }, poison: 'block' });
    sent = await scene.emitOne({ headers: { tenant: 'acme' } });
    dead = await scene.emit(
      ['1', '2', '3'].map((n) => ({ aggregate: ['letter', n] as const, payload: { does: 'reject' } as const })),
    );
    await scene.untilStatus('FAILED', dead.length);
    await scene.untilStatus('SENT', 1);
  });
  afterAll(async () => {
    dashboard?.close();
    await scene?.close();
    await server?.stop();
  });

  // biome-ignore lint/suspicious/noExplicitAny: a test knows the fields of the answer it asked for.
  async function call(method: string, path: string, body: object = {}): Promise<any> {
    const response = await dashboard.fetch(
      new Request(`http://localhost/api/shop${path}`, {
        method,
        headers: { [requestHeader]: '1' },
        ...(method === 'POST' && { body: JSON.stringify(body) }),
      }),
    );
    const answer = await response.json();
    expect(response.status, `${method} ${path}: ${JSON.stringify(answer)}`).toBe(200);
    return answer;
  }

  /** Starts a long change and returns how many events it has changed. */
  async function change(path: string, body: object): Promise<number> {
    const { id } = await call('POST', path, body);
    const read = () => call('GET', `/operations/${id}`);
    await until(async () => (await read()).state !== 'running', { what: `${path} has ended` });
    const { state, count } = await read();
    expect(state).toBe('done');
    return count;
  }

  test('every page is read', async () => {
    const overview = await new OverviewReader(scene.admin).read();
    expect(overview).toMatchObject({ counts: { failed: 3, delivered: 1 }, blocked: [{}, {}, {}] });
    const seen = (await call('POST', '/search', { header: ['tenant', 'acme'] })).events;
    expect(seen).toMatchObject([{ id: sent, status: 'SENT' }]);
    expect((await call('POST', '/search', { error: 'scripted', status: 'FAILED' })).events).toHaveLength(3);
    expect((await call('POST', '/search', { aggregate: ['letter', '2'] })).events).toMatchObject([{ id: dead[1] }]);
    expect(await call('GET', `/events/${dead[0]}`)).toMatchObject({ deadLetter: { reason: 'rejected' } });
    expect(await call('GET', '/dead-letters/groups')).toMatchObject({ groups: [{ count: 3 }] });
    expect(await call('POST', '/dead-letters/count', { all: true })).toMatchObject({ count: 3, blocking: 3 });
    expect((await call('POST', '/dead-letters', {})).deadLetters).toHaveLength(3);
    for (const { method, path, changes } of routes) {
      if (method === 'GET' && !changes && !path.includes(':id')) await call(method, path);
    }
  });

  test('every change works, and the audit has who and why', async () => {
    const reason = 'a test';
    const [first = '', second = '', third = ''] = dead;
    expect(await change('/dead-letters/discard', { target: { ids: [first] }, reason })).toBe(1);
    await call('POST', `/events/${second}/edit-and-retry`, { payload: { does: 'ok' }, reason });
    await scene.untilStatus('SENT', 2);
    expect((await call('GET', `/events/${second}`)).edits).toMatchObject([{ by: 'ann', reason }]);
    scene.healed = true;
    expect(await change('/dead-letters/retry', { target: { ids: [third] }, reason })).toBe(1);
    await scene.untilStatus('SENT', 3);
    expect(await change('/events/replay', { target: { ids: [sent] }, reason })).toBe(1);
    await call('POST', '/destinations/pause', { name: 'kafka', reason });
    await call('POST', '/queues/pause', { name: 'default', reason });
    const waiting = await scene.emitOne({ aggregate: ['order', 'waiting'] });
    expect(await change('/events/make-due', { target: { ids: [waiting] }, reason })).toBeGreaterThanOrEqual(0);
    expect(await change('/events/cancel', { target: { ids: [waiting] }, reason })).toBe(1);
    await call('POST', '/queues/resume', { name: 'default', reason });
    await call('POST', '/destinations/resume', { name: 'kafka', reason });
    expect(await call('POST', '/prune', { olderThanMs: 3_600_000, dryRun: true })).toMatchObject({ events: 0 });
    expect(await change('/prune', { olderThanMs: 3_600_000, reason })).toBe(0);
    const { operations } = await call('POST', '/audit', {});
    expect(operations.map(({ action }: { action: string }) => action)).toEqual(
      expect.arrayContaining([
        'cancel',
        'discard',
        'editAndRetry',
        'pauseDestination',
        'pauseQueue',
        'prune',
        'replay',
        'retry',
      ]),
    );
    for (const each of operations) expect(each).toMatchObject({ by: 'ann', reason });
    await scene.db.query("update postcommit.outbox_audit set started_at = started_at - interval '200 days'");
    expect(await pruneAudit(scene.db.pool, 'postcommit', { keepMs: 0, rowsMax: 1_000 })).toBe(operations.length);
    expect((await call('POST', '/audit', {})).operations).toEqual([]);
  });
});
