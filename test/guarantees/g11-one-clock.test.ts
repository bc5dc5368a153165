import { describe, expect, test } from 'vitest';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const day = 24 * 3_600_000;

describe('G11 one clock', () => {
  test.each([
    ['a day ahead', day],
    ['a day behind', -day],
  ])('a relay whose clock is %s: delays, retries and leases are the database’s', (_name, clockSkewMs) =>
    withScenario(async (scenario) => {
      const leaseMs = 1_000;
      const retry = { delaysMs: [700] };
      const skewed = await scenario.child('skewed', { leaseMs, retry }, { clockSkewMs });
      await scenario.emit([
        { aggregateId: 'delayed', delayMs: 900 },
        { aggregateId: 'retried', script: { failTimes: 1 } },
        { aggregateId: 'at-once' },
      ]);
      // A relay with a correct clock checks leases meanwhile, and finds no lost relay.
      const lostRelays: unknown[] = [];
      const watcher = await scenario.relay('watcher', { leaseMs, retry, prefetchMax: 2, batchSizeMax: 2 });
      watcher.on('relayLost', (lost) => lostRelays.push(lost));
      await scenario.drained();
      const rows = await scenario.db.query(
        `select e.aggregate_id, extract(epoch from d.delivered_at - e.created_at) * 1000 as ms
           from postcommit.outbox_events e join postcommit.outbox_deliveries d on d.seqs @> e.seq`,
      );
      const afterMs = Object.fromEntries(rows.map(({ aggregate_id, ms }) => [aggregate_id, Number(ms)]));
      expect(afterMs.delayed).toBeGreaterThanOrEqual(900);
      expect(afterMs.delayed).toBeLessThan(3_000);
      expect(afterMs.retried).toBeGreaterThanOrEqual(700);
      expect(afterMs.retried).toBeLessThan(3_000);
      const startedAt = performance.now();
      await until(() => performance.now() - startedAt > 2 * leaseMs, { what: 'two leases have passed' });
      expect(lostRelays).toEqual([]);
      expect(skewed.messages.filter(({ event }) => event === 'leaseLost' || event === 'relayLost')).toEqual([]);
    })(),
  );

  test(
    'nothing is delivered before its time, and nothing long after',
    withScenario(async (scenario) => {
      await scenario.relay('one');
      await scenario.emit(Array.from({ length: 60 }, (_, n) => ({ aggregateId: `a${n}`, delayMs: n * 25 })));
      await scenario.drained();
      const rows = await scenario.db.query(
        `select extract(epoch from d.delivered_at - e.available_at) * 1000 as late_ms
           from postcommit.outbox_events e join postcommit.outbox_deliveries d on d.seqs @> e.seq`,
      );
      expect(rows).toHaveLength(60);
      const late = rows.map(({ late_ms }) => Number(late_ms)).sort((a, b) => a - b);
      expect(late[0]).toBeGreaterThanOrEqual(0);
      // A second between two looks at the queue would show here; half of them come within a fraction of that.
      expect(late[30]).toBeLessThan(250);
    }),
  );
});
