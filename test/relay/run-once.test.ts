import { describe, expect, test } from 'vitest';
import { createRelay } from '../../src/index.ts';
import { withScenario } from '../support/relay-scenario.ts';

describe('runOnce', () => {
  test(
    'delivers what is due now, also behind a first batch, and answers what it did',
    withScenario(async (scenario) => {
      await scenario.emitLine('many', 250);
      await scenario.emit([
        { aggregateId: 'bad', script: { reject: true } },
        { aggregateId: 'again', script: { failTimes: 1 } },
        { aggregateId: 'later', delayMs: 3_600_000 },
      ]);
      const relay = scenario.idleRelay('one', { batchSizeMax: 20, prefetchMax: 40, retry: { delaysMs: [3_600_000] } });
      expect(await relay.runOnce()).toEqual({ delivered: 250, failed: 1, deadLettered: 1 });
      expect(await relay.runOnce()).toEqual({ delivered: 0, failed: 0, deadLettered: 0 });
      expect(relay.stats()).toMatchObject({ state: 'idle', delivered: 250, claimed: 252 });
      await relay.start();
      await expect(relay.runOnce()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_RELAY_STATE' });
    }),
  );

  test(
    'takes over from one that crashed, although it never beats itself',
    withScenario(async (scenario) => {
      await scenario.emitLine('a', 5);
      await scenario.db.query(
        `insert into postcommit.outbox_relays (name, host, pid, lease_until)
         values ('crashed', 'h', 1, now() - interval '2 minutes')`,
      );
      await scenario.db.query(
        'update postcommit.outbox_queue set claimed_by = (select max(token) from postcommit.outbox_relays)',
      );
      // No relay is declared lost while the server has been up for less than a lease.
      const [{ up }] = await scenario.db.query(
        `select extract(epoch from now() - pg_postmaster_start_time()) * 1000 as up`,
      );
      const leaseMs = Math.max(300, Math.min(30_000, Math.floor(Number(up))));
      expect(await scenario.idleRelay('one', { leaseMs }).runOnce()).toMatchObject({ delivered: 5 });
    }),
  );

  test(
    'a database that is unreachable, or not migrated, is an error with a code',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = scenario.idleRelay('one', { connectionString: proxy.url(scenario.db.url) });
      proxy.refuse();
      await expect(relay.runOnce()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
      const elsewhere = createRelay({
        connectionString: scenario.db.url,
        schema: 'nowhere',
        handlers: { other: { ignore: () => {} } },
      });
      await expect(elsewhere.runOnce()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
      expect(elsewhere.stats().state).toBe('idle');
    }),
  );
});
