import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { type ProductionFacts, productionFindings } from '../../src/admin/doctor/production-findings.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import type { RelayInfo } from '../../src/index.ts';
import { createMetrics } from '../../src/metrics/index.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { createTestDatabase } from '../support/database.ts';
import { postgresVersions, sharedVersion } from '../support/postgres-versions.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

const relayOn = (host: string, reason = 'listening'): RelayInfo => ({
  token: '1',
  name: `relay of ${host}`,
  host,
  pid: 1,
  state: 'alive',
  startedAt: new Date(),
  heartbeatAt: new Date(),
  leaseUntil: new Date(),
  stats: { lane: { kind: 'polling', reason } },
  targets: [],
  queues: ['default'],
  sessionLock: true,
});
const ready: ProductionFacts = {
  settings: { idle_in_transaction_session_timeout: '300000' } as ProductionFacts['settings'],
  rights: { currentRole: 'relay', superuser: false, owner: false, usage: true, missing: [] },
  relays: [relayOn('a'), relayOn('b')],
  tasks: [{ task: 'events', ranAt: new Date(), durationMs: 1, changed: 0, failures: 0, keepMs: 1_000 }],
  measured: true,
};
const endless = { task: 'events', ranAt: new Date(), durationMs: 1, changed: 0, failures: 0 };

describe('the production check', () => {
  it('has nothing to say about an outbox that is ready', () => {
    expect(productionFindings(ready)).toMatchObject([{ severity: 'ok' }]);
  });

  it.each<[string, Partial<ProductionFacts>]>([
    ['point 3', { settings: { ...ready.settings, idle_in_transaction_session_timeout: '0' } }],
    ['point 4', { tasks: [{ ...endless, keepMs: Number.POSITIVE_INFINITY }] }],
    ['point 5', { rights: { ...ready.rights, owner: true } }],
    ['point 5', { rights: { ...ready.rights, superuser: true } }],
    ['point 8', { relays: [] }],
    ['point 8', { relays: [relayOn('a')] }],
    ['point 8', { relays: [relayOn('a'), relayOn('a')] }],
    ['point 8', { relays: [relayOn('a'), { ...relayOn('b'), state: 'overdue' }] }],
    ['point 11', { relays: [relayOn('a'), relayOn('b', 'no_notifications')] }],
    ['point 16', { measured: false }],
  ])('warns of %s', (point, changed) => {
    const findings = productionFindings({ ...ready, ...changed });
    expect(findings).toMatchObject([{ severity: 'warning', what: expect.stringMatching(`^${point}: `) }]);
    // The list has the point, and says that the doctor checks it.
    const page = readFileSync(new URL('../../docs/production-checklist.md', import.meta.url), 'utf8');
    const line = page.split('\n').find((each) => each.startsWith(`| ${point.replace('point ', '')} |`));
    expect(line).toContain('*doctor*');
  });

  it('does not mind relays that do not listen', () => {
    expect(productionFindings({ ...ready, relays: [relayOn('a'), relayOn('b', 'listen_off')] })).toMatchObject([
      { severity: 'ok' },
    ]);
  });
});

describe.each(postgresVersions)('postcommit doctor --production on PostgreSQL %i', (version) => {
  let server: EmbeddedPostgres | undefined;
  let scene: Scene;

  beforeAll(async () => {
    if (version !== sharedVersion) server = await startEmbeddedPostgres({ version });
    scene = new Scene(await createTestDatabase({ serverUrl: server?.connectionString ?? inject('serverUrl') }));
  });
  afterAll(async () => {
    await scene?.close();
    await server?.stop();
  });

  const points = async (...args: string[]) => {
    const { stdout } = await runHere(['doctor', '--json', ...args], { env: { DATABASE_URL: scene.db.url } });
    const { findings } = JSON.parse(stdout) as { findings: { check: string; what: string }[] };
    return findings.filter(({ check }) => check === 'production').map(({ what }) => what.replace(/:.*/, ''));
  };

  it('checks it on demand, and sees relays and their metrics', async () => {
    expect(await points()).toEqual([]);
    expect(await points('--production')).toEqual(['point 3', 'point 5', 'point 8', 'point 16']);
    await scene.relay({ metrics: createMetrics({ sampleIntervalMs: 100 }), leaseMs: 300 });
    await until(async () => !(await points('--only', 'production')).includes('point 16'), {
      what: 'a relay reports metrics',
    });
    expect(await points('--only', 'production')).toEqual(['point 3', 'point 5', 'point 8']);
    // A relay reports its lane with its first renewal.
    const reported = async () => (await scene.admin.relays())[0]?.stats.lane;
    expect(await until(reported, { what: 'the relay reports its lane' })).toMatchObject({ kind: 'polling' });
  });
});
