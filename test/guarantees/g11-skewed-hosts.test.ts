import { describe, expect, test } from 'vitest';
import { endChild, startChild } from '../support/child.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const dayMs = 24 * 3_600_000;
const leaseMs = 1_800;
const delayMs = 700;
const options = { leaseMs, retry: { delaysMs: [delayMs] }, inFlightMax: 2, batchSizeMax: 2, prefetchMax: 2 };
/** Later than this is no matter of a busy machine. */
const soonMs = 10_000;

/** How long after it was due each delayed event was delivered, and each failed one tried again, by the database. */
async function overdueMs(scenario: RelayScenario): Promise<number[]> {
  const rows = await scenario.db.query<{ ms: number }>(
    `select (extract(epoch from d.delivered_at - coalesce(f.failed_at + $1 * interval '1 ms', e.available_at)) * 1000)::integer as ms
       from postcommit.outbox_events e
       join postcommit.outbox_deliveries d on d.seqs @> e.seq
       left join postcommit.outbox_failures f on f.seq = e.seq
      where f.seq is not null or e.available_at is not null`,
    [delayMs],
  );
  return rows.map(({ ms }) => ms);
}

async function expectOnTime(scenario: RelayScenario, count: number): Promise<void> {
  const overdue = await overdueMs(scenario);
  expect(overdue).toHaveLength(count);
  for (const ms of overdue) {
    expect(ms).toBeGreaterThanOrEqual(0);
    expect(ms).toBeLessThan(soonMs);
  }
}

async function lostRelays(scenario: RelayScenario): Promise<string[]> {
  const rows = await scenario.db.query(`select name from postcommit.outbox_relays where ended_as = 'lost'`);
  return rows.map(({ name }) => name);
}

const beganIn = (scenario: RelayScenario, relay: string) =>
  scenario.journal.read().filter((entry) => entry.phase === 'begin' && entry.relay === relay).length;

const clocks: [string, number][] = [
  ['a day ahead', dayMs],
  ['a day behind', -dayMs],
];

describe.each(clocks)('G11 one clock: a host that is %s', (_name, clockSkewMs) => {
  test(
    'with a relay: delays and retries are on time, leases are neither cut short nor prolonged',
    withScenario(async (scenario) => {
      const skewed = await scenario.child('skewed', options, { clockSkewMs });
      await scenario.emit([
        { aggregateId: 'delayed', delayMs },
        { aggregateId: 'delayed until', availableAt: new Date((await scenario.now()) + delayMs) },
        { aggregateId: 'failing', script: { failTimes: 1 } },
      ]);
      await scenario.drained();
      await expectOnTime(scenario, 3);

      // Two relays at work for longer than a lease: neither takes the other for dead.
      const right = await scenario.relay('right', options);
      const before = beganIn(scenario, 'skewed');
      const script = { workMs: 1.2 * leaseMs };
      await scenario.emit(Array.from({ length: 4 }, (_, n) => ({ aggregateId: `slow-${n}`, script })));
      await until(() => beganIn(scenario, 'right') === 2 && beganIn(scenario, 'skewed') === before + 2, {
        what: 'both are at work',
      });
      await scenario.drained();
      expect(await lostRelays(scenario)).toEqual([]);
      expect(await scenario.findings()).toMatchObject({ lost: [], overlaps: [], duplicates: 0 });

      // When it dies, that is noticed in time.
      await right.stop();
      await scenario.emit([{ aggregateId: 'stuck', script: { hangIn: 'skewed' } }]);
      await until(() => beganIn(scenario, 'skewed') === before + 3, { what: 'the skewed relay has it' });
      await right.start();
      const killedAt = await scenario.now();
      skewed.kill('SIGKILL');
      await scenario.drained();
      expect((await scenario.now()) - killedAt).toBeLessThan(2 * leaseMs);
      expect(await lostRelays(scenario)).toEqual(['skewed']);
    }),
  );

  test(
    'with a relay that takes over: the dead one is not declared dead too soon, nor too late',
    withScenario(async (scenario) => {
      const victim = await scenario.child('victim', options);
      await scenario.emit([{ aggregateId: 'stuck', script: { hangIn: 'victim' } }]);
      await until(() => beganIn(scenario, 'victim') === 1, { what: 'the victim has it' });
      await scenario.child('skewed', options, { clockSkewMs });
      // It has looked for dead relays by now: it does so when it starts.
      expect(await lostRelays(scenario)).toEqual([]);
      // As if it were on another host, behind a transaction pooler: only its lease tells.
      await scenario.db.query(
        `update postcommit.outbox_relays set host_id = 'elsewhere', session_lock = false where name = 'victim'`,
      );
      const killedAt = await scenario.now();
      victim.kill('SIGKILL');
      await scenario.drained();
      expect((await scenario.now()) - killedAt).toBeLessThan(2 * leaseMs);
      const [lost] = await scenario.db.query(
        `select name, ended_at > lease_until as in_time from postcommit.outbox_relays where ended_as = 'lost'`,
      );
      expect(lost).toEqual({ name: 'victim', in_time: true });
    }),
  );

  test(
    'with an emitter: its delays run by the database, and its events keep their order',
    withScenario(async (scenario) => {
      await scenario.relay('right', options);
      const startedAt = await scenario.now();
      const args = [scenario.db.url, '10', String(delayMs)];
      const emitters = [0, clockSkewMs].map((skew) =>
        startChild('test/guarantees/skewed-emitter.child.ts', args, { CLOCK_SKEW_MS: String(skew) }),
      );
      try {
        const [, skewed] = await Promise.all(emitters.map((emitter) => emitter.next(undefined, 40_000)));
        expect(Math.abs(skewed.skewMs - clockSkewMs)).toBeLessThan(1_000);
      } finally {
        for (const emitter of emitters) await endChild(emitter);
      }
      await scenario.drained();
      const [{ wrong }] = await scenario.db.query(
        `select count(*)::integer as wrong from postcommit.outbox_events
          where extract(epoch from created_at) * 1000 not between $1 and $2`,
        [startedAt, await scenario.now()],
      );
      expect(wrong).toBe(0);
      await expectOnTime(scenario, 2);
      const delays = await scenario.db.query(
        `select extract(epoch from available_at - created_at) * 1000 as ms
           from postcommit.outbox_events where available_at is not null`,
      );
      for (const { ms } of delays) expect(Math.abs(Number(ms) - delayMs)).toBeLessThan(100);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], duplicates: 0 });
    }),
  );
});
