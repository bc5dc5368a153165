import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const dayMs = 86_400_000;
const options = { leaseMs: 3_000, pollIntervalMs: 100, maintenance: { keepEventsMs: dayMs, intervalMs: 100 } };

const log = (scenario: RelayScenario) =>
  scenario.db.query('select seq, tableoid::regclass::text as place from postcommit.outbox_events order by seq');

describe('on a partitioned log the leader', () => {
  test(
    'opens the next partition, drops old ones, and prunes what survived in the default partition once it may',
    withScenario(async (scenario) => {
      const { db } = scenario;
      const { admin } = createOutbox({ db: fromPg(db.pool) });
      // Three delivered, one dead with its error, and a relay record for all of them.
      await db.query(`insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
                      select 'thing', n::text, 'scripted', 'null', now() - interval '3 days' from generate_series(1, 4) n`);
      await db.query('delete from postcommit.outbox_queue');
      await db.query(
        `insert into postcommit.outbox_dead_letters (seq, reason, attempts, error) values (4, 'rejected', 1, 'no')`,
      );
      await db.query(`insert into postcommit.outbox_failures (seq, attempt, relay, error) values (4, 1, 1, 'no')`);
      await db.query(
        `insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs) values (1, 1, '{t}', '{[1,4)}')`,
      );
      await admin.partitions.convert('day');
      await db.query(`update postcommit.outbox_partitions set opened_at = now() - interval '4 days', closed_at = now() - interval '2 days'
                       where number = 0`);
      await db.query(`update postcommit.outbox_partitions set opened_at = now() - interval '2 days' where number = 1`);
      await scenario.emitLine('new', 1);

      await scenario.relay('one', options);
      await until(async () => (await log(scenario))[0]?.place === 'postcommit.outbox_events_default', {
        what: 'the old partition is dropped and its dead letter moved',
        timeoutMs: 20_000,
      });
      const [opened] = await db.query(
        'select max(number) as number from postcommit.outbox_partitions where opened_at is not null',
      );
      expect(Number(opened.number)).toBeGreaterThan(1);
      expect(await admin.find('4')).toMatchObject({ status: 'FAILED', failures: [{ error: 'no' }] });
      await scenario.drained();

      await admin.discard({ ids: ['4'] });
      await db.query(
        `update postcommit.outbox_maintenance set cycle_at = now() - interval '2 hours' where task = 'prune'`,
      );
      await until(async () => (await log(scenario)).length === 1, {
        what: 'the discarded one is pruned',
        timeoutMs: 20_000,
      });
      expect(await db.query('select from postcommit.outbox_dead_letters')).toEqual([]);
      expect(await db.query('select from postcommit.outbox_failures')).toEqual([]);
      expect((await log(scenario))[0]?.place).toBe('postcommit.outbox_events_p1');
    }),
  );
});
