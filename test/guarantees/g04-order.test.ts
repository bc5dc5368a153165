import { describe, expect, test } from 'vitest';
import type { JournalEntry } from '../support/journal.ts';
import type { SeededRandom } from '../support/random.ts';
import { seededRandom } from '../support/random.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const aggregates = ['a', 'b', 'c', 'd', 'e'];
const flaky = { retry: { delaysMs: [0, 5, 20, 50, 100] }, leaseMs: 2_000, pollIntervalMs: 100 };

/** 50 writers at once, each with some transactions of one to three events for random aggregates. */
async function writeConcurrently(scenario: RelayScenario, random: SeededRandom, writers = 50): Promise<void> {
  const plans = Array.from({ length: writers }, () =>
    Array.from({ length: random.integer(4, 8) }, () =>
      Array.from({ length: random.integer(1, 3) }, () => ({
        aggregateId: random.pick(aggregates),
        script: { failTimes: random.chance(0.1) ? random.integer(1, 3) : 0, workMs: random.chance(0.1) ? 3 : 0 },
        ...(random.chance(0.03) ? { delayMs: random.integer(1, 300) } : {}),
      })),
    ),
  );
  await Promise.all(
    plans.map(async (transactions) => {
      for (const events of transactions) await scenario.emit(events);
    }),
  );
}

async function expectAllInOrder(scenario: RelayScenario, killed: string[] = []): Promise<void> {
  const findings = await scenario.findings({ killed });
  expect(findings).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
}

describe('G4 order per aggregate', () => {
  test(
    '50 concurrent writers of 5 aggregates, 3 relays, random failures and delays',
    withScenario(async (scenario) => {
      const random = seededRandom();
      for (const name of ['one', 'two', 'three']) await scenario.relay(name, flaky);
      await writeConcurrently(scenario, random);
      await scenario.drained();
      await expectAllInOrder(scenario);
      expect((await scenario.findings()).duplicates).toBe(0);
    }),
  );

  test(
    'the same while relays stop and start',
    withScenario(async (scenario) => {
      const random = seededRandom();
      const relays = await Promise.all(['one', 'two', 'three'].map((name) => scenario.relay(name, flaky)));
      const writing = writeConcurrently(scenario, random, 25);
      for (let round = 0; round < 12; round++) {
        const relay = random.pick(relays);
        const done = scenario.journal.ends().length;
        await relay.stop();
        await relay.start();
        await until(async () => scenario.journal.ends().length > done || (await scenario.queued()) === 0, {
          what: 'relays went on',
        });
      }
      await writing;
      await scenario.drained();
      await expectAllInOrder(scenario);
      expect((await scenario.findings()).duplicates).toBe(0);
    }),
  );

  test(
    'two relays and a SIGKILL: nothing lost, order kept, taken over within two lease times',
    withScenario(async (scenario) => {
      const random = seededRandom();
      const leaseMs = 2_000;
      const options = { ...flaky, leaseMs, inFlightMax: 5, batchSizeMax: 50, prefetchMax: 100 };
      const victim = await scenario.child('victim', options);
      await scenario.emitLine('stuck', 20, { hangIn: 'victim' });
      await writeConcurrently(scenario, random, 20);
      await until(() => scenario.journal.ends().length >= 50, { what: 'the victim is at work' });
      await until(() => scenario.journal.read().some(({ key }) => key === 'thing:stuck'), { what: 'it is stuck' });
      await scenario.relay('survivor', options);
      const [held] = await scenario.db.query(
        'select array_agg(seq::text) as seqs from postcommit.outbox_queue where claimed_by is not null',
      );
      expect(held.seqs.length).toBeGreaterThan(0);
      const killedAt = await scenario.now();
      victim.kill('SIGKILL');
      await victim.exited;
      await scenario.drained();
      const [last] = await scenario.db.query(
        `select max(extract(epoch from delivered_at) * 1000) as ms from postcommit.outbox_deliveries d
          where exists (select from unnest($1::bigint[]) s where d.seqs @> s)`,
        [held.seqs],
      );
      expect(Number(last.ms) - killedAt).toBeLessThan(2 * leaseMs);
      await expectAllInOrder(scenario, ['victim']);
      // At most what was in flight when it died, or delivered and not yet written down, comes twice.
      expect((await scenario.findings()).duplicates).toBeLessThanOrEqual(options.prefetchMax);
    }),
  );

  test(
    'a transaction that drew a low seq and commits late is delivered, promptly',
    withScenario(async (scenario) => {
      const late = await scenario.db.pool.connect();
      await late.query('begin');
      await late.query(`select postcommit.emit('scripted', 'thing', 'late', 'null')`);
      await scenario.relay('one', { inFlightMax: 4, batchSizeMax: 20 });
      await scenario.emitLine('early', 100);
      await until(() => scenario.journal.ends().length === 100, { what: 'the later ones were delivered' });
      // A backlog of many aggregates keeps the relay from looking at the start of the queue each time.
      await scenario.emit(
        Array.from({ length: 6_000 }, (_, n) => ({ aggregateId: `b${n % 200}`, script: { workMs: 1 } })),
      );
      await until(() => scenario.journal.ends().length > 400, { what: 'the backlog is being delivered' });
      const before = scenario.journal.ends().length;
      await late.query('commit');
      late.release();
      const begins = ({ key, phase }: JournalEntry) => key === 'thing:late' && phase === 'begin';
      await until(() => scenario.journal.read().some(begins), { what: 'the late one came' });
      const entries = scenario.journal.read();
      const meanwhile =
        entries.slice(0, entries.findIndex(begins)).filter(({ phase }) => phase === 'end').length - before;
      expect(meanwhile).toBeLessThan(1_500);
      const [{ seq }] = await scenario.db.query(
        `select seq::text from postcommit.outbox_events where aggregate_id = 'late'`,
      );
      expect(seq).toBe('1');
    }),
  );
});
