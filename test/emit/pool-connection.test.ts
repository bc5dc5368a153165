import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRelay, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.close());

/** What a relay in the process of this pool would connect with. */
function connectionOf(options: pg.PoolConfig) {
  return fromPg(new pg.Pool(options)).connection?.();
}

describe('the connection of a pool, for a relay', () => {
  it.each([
    ['a URL', (url: string) => ({ connectionString: url })],
    [
      'fields',
      (url: string) => {
        const { hostname: host, port, username: user, password, pathname } = new URL(url);
        return { host, port: Number(port), user, password, database: pathname.slice(1) };
      },
    ],
    [
      'a URL and a password function',
      (url: string) => {
        const { password } = new URL(url);
        return { connectionString: url.replace(`:${password}@`, '@'), password: () => password };
      },
    ],
  ])('of %s starts one', async (_name, options) => {
    const relay = createRelay({
      ...connectionOf(options(database.url)),
      handlers: { 'order.created': { ignore: () => {} } },
    });
    await relay.start();
    expect(relay.stats().connected).toBe(true);
    await relay.stop();
  });

  it('leaves out what the URL says already, and what only the pool needs', () => {
    const connectionString = 'postgres://shop:secret@db.example.com/shop';
    expect(connectionOf({ connectionString, host: 'other', max: 5, ssl: true })).toEqual({
      connectionString,
      connection: { ssl: true },
    });
  });

  it('is not known where pg would take it from the environment', () => {
    expect(connectionOf({ user: 'shop' })).toBeUndefined();
  });
});
