import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox, defineEvents, fromPg } from '../../src/index.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { postgresVersions, sharedVersion } from '../support/postgres-versions.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const older = defineEvents({ 'order.created': { version: 2, upcast: { 1: (payload) => payload } } });
const newer = defineEvents({
  'order.created': { version: 3, upcast: { 1: (payload) => payload, 2: (payload) => payload } },
});

describe.each(postgresVersions)('an event of a version that no relay knows, on PostgreSQL %i', (version) => {
  let server: EmbeddedPostgres | undefined;
  let scenario: RelayScenario;
  beforeAll(async () => {
    if (version !== sharedVersion) server = await startEmbeddedPostgres({ version });
    scenario = await RelayScenario.create(server ? { serverUrl: server.connectionString } : {});
  });
  afterAll(async () => {
    await scenario.close();
    await server?.stop();
  });

  test('doctor and find tell what it waits for, and nothing once it is delivered', async () => {
    const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
    const handlers = { 'order.created': { book: () => {} } };
    const relayOf = (name: string, events: typeof older) =>
      scenario.relay(name, { events, handlers, leaseMs: 2_000, logger: false } as never);
    await relayOf('old', older);
    const order = { aggregateId: '1', type: 'order.created' };
    const [id = '', behind = '', fine = ''] = await scenario.emit([
      { ...order, schemaVersion: 3 },
      { ...order, schemaVersion: 2 },
      { ...order, schemaVersion: 2, aggregateId: '2' },
    ]);
    const isTold = async () => (await admin.find(id))?.unknownVersion !== undefined;
    await until(isTold, { what: 'the relay has reported it', timeoutMs: 20_000 });
    expect(await admin.find(id)).toMatchObject({
      status: 'PENDING',
      attempts: 0,
      unknownVersion: { newest: 2, relays: ['old'] },
    });
    expect(await admin.find(behind)).toMatchObject({ waitingBehind: { id } });
    for (const other of [behind, fine]) expect(await admin.find(other)).not.toHaveProperty('unknownVersion');

    const { findings } = await admin.doctor({ only: ['relays'] });
    expect(findings).toContainEqual(
      expect.objectContaining({
        severity: 'warning',
        what: 'events of version 3 of order.created wait for a relay that knows it: the catalogue of old ends at version 2',
      }),
    );
    const shown = await runHere(['events', id], { env: { DATABASE_URL: scenario.db.url } });
    expect(shown.stdout).toMatch(/waits for +a relay that knows version 3 of its type; the catalogue of old ends at 2/);

    await relayOf('new', newer as never);
    await scenario.drained();
    expect(await admin.find(id)).not.toHaveProperty('unknownVersion');
    const isQuiet = async () => {
      const { findings } = await admin.doctor({ only: ['relays'] });
      return !findings.some(({ what }) => what.includes('version 3'));
    };
    await until(isQuiet, { what: 'the finding is gone', timeoutMs: 20_000 });
  });
});
