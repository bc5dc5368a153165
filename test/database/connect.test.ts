import { type AddressInfo, createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { findServer } from '../../src/database/connect.ts';
import { resolveConnection } from '../../src/database/connection-options.ts';
import { parseConnectionString } from '../../src/database/connection-string.ts';
import { ReconnectingClient } from '../../src/database/reconnecting-client.ts';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { within } from '../support/wait.ts';

describe('a list of hosts', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await createTestDatabase();
  });
  afterAll(() => db.close());

  /** The database's address behind others in the list. */
  function behind(...hosts: string[]): string {
    const { host } = new URL(db.url);
    return db.url.replace(`@${host}`, `@${[...hosts, host].join(',')}`);
  }

  async function silentHost(): Promise<string> {
    const silent = createServer(() => {}).listen(0, '127.0.0.1');
    onTestFinished(() => void silent.close());
    await new Promise((listening) => silent.once('listening', listening));
    return `127.0.0.1:${(silent.address() as AddressInfo).port}`;
  }

  test('one that refuses connections, one that has no address and one that never answers are left for the next', async () => {
    const list = parseConnectionString(behind('127.0.0.1:1', 'no-such-host.invalid', await silentHost()));
    const found = findServer(list, 'test');
    expect(await within(found, { timeoutMs: 8_000, what: 'it was found' })).toEqual(list.servers[3]);
  });

  test('a client skips them too, and names all of them when none is left', async () => {
    const options = { applicationName: 'test', queryTimeoutMs: 5_000, logger: silentLogger };
    const client = new ReconnectingClient({
      ...options,
      servers: resolveConnection({ connectionString: behind('127.0.0.1:1') }),
    });
    onTestFinished(() => client.close());
    await client.open();
    expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
    const lost = new ReconnectingClient({
      ...options,
      servers: resolveConnection({ connectionString: 'postgres://a:b@127.0.0.1:1,127.0.0.1:2/c' }),
    });
    await expect(lost.open()).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE',
      message: expect.stringMatching(/127\.0\.0\.1:1: .*ECONNREFUSED.*127\.0\.0\.1:2: .*ECONNREFUSED/),
    });
  });

  test('one that refuses the login ends the search', async () => {
    const wrong = parseConnectionString(`${behind(new URL(db.url).host)}_missing`);
    await expect(findServer(wrong, 'test')).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_REFUSED' });
  });
});
