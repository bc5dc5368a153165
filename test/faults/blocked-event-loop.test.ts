import { describe, expect, test } from 'vitest';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const leaseMs = 1_500;
const began = (scenario: RelayScenario) => scenario.journal.read().filter(({ phase }) => phase === 'begin');
const beganIn = (scenario: RelayScenario, relay: string) =>
  began(scenario).filter((entry) => entry.relay === relay).length;
const relays = (scenario: RelayScenario) =>
  scenario.db.query('select name, ended_as from postcommit.outbox_relays order by token');

describe('a relay whose heartbeat thread ends', () => {
  const leaseUntil = async (scenario: RelayScenario) => {
    const [row] = await scenario.db.query(
      `select extract(epoch from lease_until) * 1000 as at from postcommit.outbox_relays where ended_at is null`,
    );
    return Number(row?.at ?? 0);
  };

  test(
    'while it delivers keeps its lease',
    withScenario(async (scenario) => {
      const relay = await scenario.child('one', { leaseMs }, { threadEnds: 'onSignal' });
      relay.kill('SIGUSR2');
      await relay.next(({ event }) => event === 'thread ended');
      const before = await leaseUntil(scenario);
      await until(async () => (await leaseUntil(scenario)) > before + 2 * leaseMs, { what: 'it renews its lease' });
      await scenario.emitLine('a', 2);
      await scenario.drained();
      expect(await relays(scenario)).toEqual([{ name: 'one', ended_as: null }]);
    }),
  );

  test(
    'after it has lost its lease, before it registers again, delivers',
    withScenario(async (scenario) => {
      const relay = await scenario.child('one', { leaseMs }, { threadEnds: 'onLeaseLost' });
      await scenario.db.query(`update postcommit.outbox_relays set ended_at = now(), ended_as = 'lost'`);
      await relay.next(({ event }) => event === 'thread ended');
      await scenario.emitLine('a', 2);
      await scenario.drained();
      const before = await leaseUntil(scenario);
      await until(async () => (await leaseUntil(scenario)) > before + leaseMs, { what: 'it renews its lease' });
    }),
    60_000,
  );
});

describe('a handler that blocks the event loop', () => {
  test(
    'for three leases is executed once and settled, beside another relay',
    withScenario(async (scenario) => {
      await scenario.child('blocked', { leaseMs });
      const [id] = await scenario.emit([
        { aggregateId: 'a', script: { block: { relay: 'blocked', ms: 3 * leaseMs } } },
      ]);
      await scenario.emitLine('a', 2);
      await until(() => beganIn(scenario, 'blocked') === 1, { what: 'it is at work' });
      await scenario.relay('other', { leaseMs });
      await scenario.drained();
      // Either relay may deliver its followers afterwards.
      expect(began(scenario).filter((entry) => entry.id === id)).toMatchObject([{ relay: 'blocked', attempt: 1 }]);
      expect(await relays(scenario)).toEqual([
        { name: 'blocked', ended_as: null },
        { name: 'other', ended_as: null },
      ]);
      expect(await scenario.findings()).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
    }),
  );

  test(
    'without a thread loses its events to the other relay, and is fenced',
    withScenario(async (scenario) => {
      const blocked = await scenario.child('blocked', { leaseMs, heartbeatThread: false });
      await scenario.emit([{ aggregateId: 'a', script: { block: { relay: 'blocked', ms: 4 * leaseMs } } }]);
      await until(() => beganIn(scenario, 'blocked') === 1, { what: 'it is at work' });
      await scenario.relay('other', { leaseMs });
      await scenario.drained();
      expect(beganIn(scenario, 'other')).toBe(1);
      await blocked.next(({ event }) => event === 'leaseLost');
    }),
  );

  test(
    'for longer than blockedMaxMs is noticed: the other relay delivers, and the blocked one is fenced',
    withScenario(async (scenario) => {
      // Of the two only blockedMaxMs can be what is noticed.
      const blocked = await scenario.child('blocked', { leaseMs: 600_000, blockedMaxMs: 1_000 });
      await scenario.emit([{ aggregateId: 'a', script: { block: { relay: 'blocked', ms: 20_000 } } }]);
      await scenario.emitLine('a', 2);
      await until(() => beganIn(scenario, 'blocked') === 1, { what: 'it is at work' });
      await scenario.relay('other', { leaseMs: 600_000 });
      await scenario.drained(15_000);
      expect(beganIn(scenario, 'other')).toBe(3);
      const ended = () => scenario.journal.read().some(({ phase, relay }) => phase === 'end' && relay === 'blocked');
      const line = await until(() => /.*event loop blocked.*/.exec(blocked.stderr())?.[0], { what: 'it is printed' });
      expect(JSON.parse(line)).toMatchObject({ level: 'error', relay: 'blocked', blockedMs: expect.any(Number) });
      expect(ended()).toBe(false);
      expect(await relays(scenario)).toMatchObject([
        { name: 'blocked', ended_as: 'lost' },
        { name: 'other', ended_as: null },
      ]);
      await blocked.next(({ event }) => event === 'leaseLost', 40_000);
      expect(await scenario.db.query('select from postcommit.outbox_deliveries')).not.toEqual([]);
      expect(await scenario.findings({ killed: ['blocked'] })).toMatchObject({ lost: [], orderViolations: [] });
      const [{ n }] = await scenario.db.query(
        `select count(*)::integer as n from postcommit.outbox_events e
           join postcommit.outbox_deliveries d on d.seqs @> e.seq`,
      );
      expect(n).toBe(3);
    }),
  );
});
