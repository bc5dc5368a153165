import { describe, expect, test } from 'vitest';
import { LostClaims } from '../../src/relay/lane/lost-claims.ts';
import { createTestDatabase } from '../support/database.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

describe('a relay whose connection for claims was lost', () => {
  test(
    'claims single events the fast way again, and lost claims are delivered',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const relay = await scenario.relay('one', { connectionString, pollIntervalMs: 60_000 });
      await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.drained();
      // The claim takes effect, and the relay never learns which event it has.
      const trap = proxy.holdAnswer({ text: /claim_(one|next|many)/, connection: 'claims' });
      await scenario.emit([{ aggregateId: 'b' }]);
      await trap.caught;
      trap.cut();
      await until(() => relay.stats().connected, { what: 'it is connected again' });
      await scenario.drained();
      const fast = () => proxy.count({ text: /claim_one/, connection: 'claims' });
      const before = fast();
      for (let n = 0; fast() <= before && n < 100; n++) {
        await scenario.emit([{ aggregateId: `c${n}` }]);
        await scenario.drained();
      }
      expect(fast()).toBeGreaterThan(before);
    }),
  );
});

describe('LostClaims', () => {
  test('are freed when the sessions that may claim have ended, except what the relay knows', async () => {
    const database = await createTestDatabase();
    try {
      await database.query(`insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
        select 'order', n::text, 'order.created', '{}' from generate_series(1, 3) n`);
      await database.query('update postcommit.outbox_queue set claimed_by = case when seq < 3 then 7 else 8 end');
      const session = await database.pool.connect();
      const [{ pid }] = (await session.query('select pg_backend_pid() as pid')).rows as [{ pid: number }];
      const lost = new LostClaims();
      lost.useToken('7');
      expect(lost.arePossible).toBe(false);
      lost.inSession(pid);
      expect(await lost.release(database.pool, 'postcommit', () => ['1'])).toBe(0);
      expect(lost.arePossible).toBe(true);
      session.release(true);
      await until(async () => (await lost.release(database.pool, 'postcommit', () => ['1'])) === 1, {
        what: 'the session has ended',
      });
      expect(lost.arePossible).toBe(false);
      expect(await database.query('select seq, claimed_by from postcommit.outbox_queue order by seq')).toEqual([
        { seq: '1', claimed_by: '7' },
        { seq: '2', claimed_by: null },
        { seq: '3', claimed_by: '8' },
      ]);
    } finally {
      await database.close();
    }
  });

  test('of a session that is not known are possible until there is a new token', async () => {
    const lost = new LostClaims();
    lost.useToken('7');
    lost.inSession(undefined);
    lost.useToken('7');
    const query = () => Promise.reject(new Error('asks nothing'));
    expect(await lost.release({ query }, 'postcommit', () => [])).toBe(0);
    expect(lost.arePossible).toBe(true);
    lost.useToken('8');
    expect(lost.arePossible).toBe(false);
  });
});
