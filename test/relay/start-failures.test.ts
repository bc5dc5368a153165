import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createRelay, type ErrorCode, type Relay, type RelayOptions } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { statement } from '../support/postgres-proxy.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until, within } from '../support/wait.ts';

let database: TestDatabase;
let empty: TestDatabase;
let older: TestDatabase;
let silent: Server;
const noRights = `postcommit_test_no_rights_${randomUUID()}`;

beforeAll(async () => {
  [database, empty, older] = await Promise.all([
    createTestDatabase(),
    createTestDatabase({ migrate: false }),
    createTestDatabase(),
  ]);
  const [{ signature }] = await older.query(`select 'postcommit.claim_many'::regproc::regprocedure as signature`);
  await older.query(`drop function ${signature}`);
  silent = createServer((socket) => void socket.on('error', () => {}));
  await new Promise<void>((ready) => silent.listen(0, '127.0.0.1', ready));
  await database.query(`create role "${noRights}" login password 'p'`);
});
afterAll(async () => {
  silent.close();
  await database.query(`drop role "${noRights}"`); // Roles are the server's, not the database's.
  await Promise.all([database.close(), empty.close(), older.close()]);
});

/** The same connection string with something changed. */
function changed(connectionString: string, change: (url: URL) => void): string {
  const url = new URL(connectionString);
  change(url);
  return url.href;
}

const portOf = (server: Server) => (server.address() as { port: number }).port;

const failures: [string, ErrorCode, () => Partial<RelayOptions>][] = [
  [
    'nobody listens on the port',
    'POSTCOMMIT_E_DATABASE_UNREACHABLE',
    () => ({ connectionString: 'postgres://postgres:p@127.0.0.1:1/postgres' }),
  ],
  [
    'no such host',
    'POSTCOMMIT_E_DATABASE_UNREACHABLE',
    () => ({ connectionString: 'postgres://postgres:p@no-such-host.invalid/postgres' }),
  ],
  [
    'somebody listens and says nothing',
    'POSTCOMMIT_E_DATABASE_UNREACHABLE',
    () => ({ connectionString: `postgres://postgres:p@127.0.0.1:${portOf(silent)}/postgres` }),
  ],
  [
    'a wrong password',
    'POSTCOMMIT_E_DATABASE_REFUSED',
    () => ({ connectionString: changed(database.url, (url) => Object.assign(url, { password: 'wrong' })) }),
  ],
  [
    'no such database',
    'POSTCOMMIT_E_DATABASE_REFUSED',
    () => ({ connectionString: changed(database.url, (url) => Object.assign(url, { pathname: '/no_such_database' })) }),
  ],
  ['no tables', 'POSTCOMMIT_E_MIGRATION_MISSING', () => ({ connectionString: empty.url })],
  ['an outbox older than the package', 'POSTCOMMIT_E_MIGRATION_MISSING', () => ({ connectionString: older.url })],
  ['no such schema', 'POSTCOMMIT_E_MIGRATION_MISSING', () => ({ connectionString: database.url, schema: 'elsewhere' })],
  [
    'no rights',
    'POSTCOMMIT_E_PERMISSION_DENIED',
    () => ({
      connectionString: changed(database.url, (url) => Object.assign(url, { username: noRights, password: 'p' })),
    }),
  ],
];

async function expectNothingOpen(db: TestDatabase): Promise<void> {
  await until(
    async () => {
      const rows = await db.query(
        `select from pg_stat_activity where application_name like 'postcommit %' and datname = current_database()`,
      );
      return rows.length === 0;
    },
    { what: 'no connection is open' },
  );
}

describe.each(failures)('%s', (_name, code, options) => {
  const ways: ['start' | 'runOnce'][] = [['start'], ['runOnce']];
  test.each(ways)('%s() fails with a code and what to do, in seconds, and leaves nothing open', async (way) => {
    const relay = createRelay({
      connectionString: database.url,
      handlers: { other: { ignore: () => {} } },
      leaseMs: 3_000,
      ...options(),
    });
    const outcome = within(relay[way]() as Promise<unknown>, { timeoutMs: 15_000, what: `${way}() answered` });
    await expect(outcome).rejects.toMatchObject({ name: 'PostcommitError', code });
    expect(relay.stats()).toMatchObject({ state: 'idle', connected: false, token: undefined });
    await expectNothingOpen(database);
    await expectNothingOpen(empty);
    await expectNothingOpen(older);
    await relay.stop();
  });
});

describe('a connection that breaks while the relay starts', () => {
  /** What a start sends, in its order. */
  const steps: [string, RegExp][] = [
    ['LISTEN', statement.listen],
    ['register', statement.register],
    ['look for dead ones', /ended_as = 'lost'/],
  ];

  async function failAt(scenario: RelayScenario, text: RegExp, side: 'holdRequest' | 'holdAnswer'): Promise<Relay> {
    const proxy = await scenario.proxy();
    const relay = scenario.idleRelay('one', { connectionString: proxy.url(scenario.db.url), leaseMs: 3_000 });
    const trap = proxy[side]({ text });
    const started = relay.start();
    started.catch(() => {});
    await within(trap.caught, { what: 'the statement is under way' });
    trap.cut();
    await expect(started).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
    return relay;
  }

  test.each(steps)('at: %s', (_name, text) =>
    withScenario(async (scenario) => {
      for (const side of ['holdRequest', 'holdAnswer'] as const) {
        const relay = await failAt(scenario, text, side);
        expect(relay.stats()).toMatchObject({ state: 'idle', token: undefined });
        await expectNothingOpen(scenario.db);
        // It is not there any more, and does not pretend to be by a heartbeat.
        const beats = await scenario.db.query(
          'select token, heartbeat_at from postcommit.outbox_relays where ended_at is null',
        );
        expect(beats.length).toBeLessThanOrEqual(text === statement.register ? 1 : 0);
        await scenario.db.query('delete from postcommit.outbox_relays');
        await relay.start();
        await scenario.emit([{ aggregateId: 'a' }]);
        await scenario.drained();
        await relay.stop();
      }
    })(),
  );

  test('during the first search for parked events does not fail the start', () =>
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const search = proxy.holdRequest({ text: /= 'infinity'/ });
      const relay = await scenario.relay('one', { connectionString: proxy.url(scenario.db.url) });
      await within(search.caught, { what: 'the search is under way' });
      search.cut();
      await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.drained();
      expect(relay.stats()).toMatchObject({ state: 'running', delivered: 1 });
    })());
});
