import { describe, expect, test } from 'vitest';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const backlog = (aggregates: number, each: number) =>
  Array.from({ length: aggregates * each }, (_, n) => ({ aggregateId: `a${n % aggregates}` }));

describe('a backlog that several relays share', () => {
  test(
    'is delivered whole, though one of them lives and takes nothing',
    withScenario(async (scenario) => {
      const idle = { name: 'idle', host: 'h', pid: 1, leaseMs: 600_000 };
      await registerRelay(scenario.db.pool, 'postcommit', idle);
      await scenario.emit(backlog(200, 15));
      await scenario.relay('one', { batchSizeMax: 100, prefetchMax: 200 });
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [] });
    }),
  );

  test(
    'nothing that is free waits for one of them that is stuck, however much waits behind what that one holds',
    withScenario(async (scenario) => {
      const stuck = { name: 'stuck', host: 'h', pid: 1, leaseMs: 600_000 };
      const token = await registerRelay(scenario.db.pool, 'postcommit', stuck);
      await scenario.emit(Array.from({ length: 600 }, (_, n) => ({ aggregateId: `held ${n % 20}` })));
      await scenario.db.query(
        `update postcommit.outbox_queue set claimed_by = $1 where seq in (select min(seq) from postcommit.outbox_queue group by key)`,
        [token],
      );
      await scenario.emit(Array.from({ length: 300 }, (_, n) => ({ aggregateId: `free ${n}` })));
      await scenario.relay('one', { batchSizeMax: 100, prefetchMax: 200 });
      await until(() => scenario.journal.ends().length === 300, { what: 'all that is free was delivered' });
    }),
  );

  test(
    'is worked off by each, and by those that are left when one stops',
    withScenario(async (scenario) => {
      await scenario.emit(backlog(300, 10));
      const relays = await Promise.all(
        ['one', 'two', 'three'].map((name) => scenario.relay(name, { batchSizeMax: 50, prefetchMax: 100 })),
      );
      await until(() => relays.every((relay) => relay.stats().delivered > 0), { what: 'each has delivered something' });
      await relays[1]?.stop();
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [] });
    }),
  );

  test(
    'nothing that is free waits for one that is stuck, while the other has enough of its own to do',
    withScenario(async (scenario) => {
      const stuck = { name: 'stuck', host: 'h', pid: 1, leaseMs: 600_000 };
      const token = await registerRelay(scenario.db.pool, 'postcommit', stuck);
      const blocked = 40;
      await scenario.emit(Array.from({ length: 2 * blocked }, (_, n) => ({ aggregateId: `held ${n % blocked}` })));
      await scenario.db.query(
        `update postcommit.outbox_queue set claimed_by = $1 where seq in (select min(seq) from postcommit.outbox_queue group by key)`,
        [token],
      );
      await scenario.emit(
        Array.from({ length: 5_000 }, (_, n) => ({ aggregateId: `free ${n}`, script: { workMs: 10 } })),
      );
      // The stuck relay registered first, so the lower half of the shards is its own.
      const rows = await scenario.db.query<{ seq: string }>(
        'select seq::text from postcommit.outbox_queue where seq > $1 and (key & 1023) < 512',
        [2 * blocked],
      );
      const ofStuck = new Set(rows.map(({ seq }) => seq));
      await scenario.relay('one', { inFlightMax: 4, batchSizeMax: 50, prefetchMax: 100 });
      await until(() => scenario.journal.ends().filter((seq) => ofStuck.has(seq)).length >= 20, {
        timeoutMs: 15_000,
        what: 'some of what is in the shards of the stuck relay are delivered',
      });
      expect(scenario.journal.ends().length).toBeLessThan(4_000);
    }),
  );
});
