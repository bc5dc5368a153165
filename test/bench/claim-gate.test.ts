import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { holdClaims } from '../../bench/claim-gate.ts';
import { postcommit } from '../../bench/contenders/postcommit.ts';
import { createRelay } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
  await database.query('create table claims (via text)');
});
afterAll(() => database.close());
// Other files in this process use the same pg.
const { query } = pg.Client.prototype;
afterEach(() => {
  pg.Client.prototype.query = query;
});

const insert = 'insert into claims (via) values ($1)';

describe('the claim gate', () => {
  it('holds claims, however they are sent, and lets every other statement pass', async () => {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    const gate = holdClaims(postcommit.packageJson, /insert into claims/);
    const byPromise = client.query(insert, ['promise']);
    await gate.reached;
    const byCallback = new Promise<void>((resolve, reject) => {
      client.query(insert, ['callback'], (error) => (error ? reject(error) : resolve()));
    });
    const byPool = database.pool.query(insert, ['pool']);
    // Statements of one connection run in turn: had the claims been sent, this one would see them.
    const { rows } = await client.query('select count(*)::int as sent from claims');
    expect(rows).toEqual([{ sent: 0 }]);

    gate.open();
    await Promise.all([byPromise, byCallback, byPool]);
    await client.query(insert, ['after']);
    const sent = await database.query('select via from claims order by via');
    expect(sent.map(({ via }) => via)).toEqual(['after', 'callback', 'pool', 'promise']);
    expect(gate.counts.claims).toBe(0);
    await client.end();
  });

  it('counts what the claims of a relay did, from the moment it opens', async () => {
    await database.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'order', n::text, 'order.created', '{}' from generate_series(1, 25) n`,
    );
    const gate = holdClaims(postcommit.packageJson, postcommit.claimStatement, postcommit.readClaim);
    let delivered = 0;
    let deliveredAll = () => {};
    const all = new Promise<void>((resolve) => {
      deliveredAll = resolve;
    });
    const relay = createRelay({
      connectionString: database.url,
      handlers: {
        'order.created': {
          count: async () => {
            if (++delivered === 25) deliveredAll();
          },
        },
      },
    });
    await relay.start();
    await gate.reached;
    expect(relay.stats().claimed).toBe(0);
    gate.open();
    await all;
    await relay.stop();
    expect(gate.counts.claimed).toBe(25);
    expect(gate.counts.examined).toBeGreaterThanOrEqual(25);
    expect(gate.counts.claims).toBeGreaterThan(gate.counts.empty);
    expect(gate.counts.waitedMs).toBeGreaterThan(0);
  });
});
