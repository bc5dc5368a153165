import { afterAll, beforeAll, expect, it } from 'vitest';
import { createOutbox, fromPg, Relay, type RelayOptions } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.close());

it('calls a function for its options once, when it first starts', async () => {
  const handled: string[] = [];
  let calls = 0;
  const relay = new Relay(() => {
    calls++;
    return {
      connectionString: database.url,
      handlers: { 'order.created': { note: (event) => void handled.push(event.id) } },
    };
  });
  expect({ calls, state: relay.stats().state }).toEqual({ calls: 0, state: 'idle' });
  const outbox = createOutbox({ db: fromPg(database.pool) });
  const event = { type: 'order.created', aggregate: ['order', '1'], payload: {} } as const;
  const ids = [await outbox.transaction([], event)];
  await relay.runOnce();
  ids.push(await outbox.transaction([], event));
  await relay.runOnce();
  expect({ calls, handled }).toEqual({ calls: 1, handled: ids });
});

it('stays idle when these options are invalid, and asks again at the next start', async () => {
  let options: RelayOptions = { connectionString: database.url, leaseMs: -1 };
  const relay = new Relay(() => options);
  await expect(relay.start()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
  expect(relay.stats().state).toBe('idle');
  options = { connectionString: database.url };
  await relay.start();
  expect(relay.stats().state).toBe('running');
  await relay.stop();
});
