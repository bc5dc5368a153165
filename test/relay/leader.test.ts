import { describe, expect, test } from 'vitest';
import type { MaintenanceRun } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until, within } from '../support/wait.ts';

const leaseMs = 1_500;
const options = { leaseMs, pollIntervalMs: 100, maintenance: { intervalMs: 100 } };

/** The relay that has the duty in outbox_leadership, and its epoch. */
async function leader(scenario: RelayScenario): Promise<{ name: string; epoch: string } | undefined> {
  const [row] = await scenario.db.query(`
    select r.name, l.epoch from postcommit.outbox_leadership l join postcommit.outbox_relays r on r.token = l.owner
     where l.name = 'maintenance' and l.lease_until > now() and r.ended_at is null`);
  return row;
}

async function untilLeads(scenario: RelayScenario, name: string, timeoutMs = 20_000): Promise<{ epoch: string }> {
  const led = until(async () => ((await leader(scenario))?.name === name ? await leader(scenario) : undefined), {
    timeoutMs,
    what: `${name} leads`,
  });
  return led as Promise<{ epoch: string }>;
}

/** So many more heartbeats of a relay. */
async function beats(scenario: RelayScenario, name: string, count: number): Promise<void> {
  const sql = 'select heartbeat_at::text as at from postcommit.outbox_relays where name = $1 and ended_at is null';
  const seen = new Set<string>();
  await until(async () => seen.add((await scenario.db.query(sql, [name]))[0]?.at).size > count, {
    what: `${name} had ${count} heartbeats`,
    timeoutMs: 20_000,
  });
}

describe('maintenance has one leader', () => {
  test(
    'among several relays, and only that one opens a connection for it',
    withScenario(async (scenario) => {
      const relays = await Promise.all(['a', 'b', 'c'].map((name) => scenario.relay(name, options)));
      await until(() => relays.some((relay) => relay.stats().leading), { what: 'one leads' });
      for (const name of ['a', 'b', 'c']) await beats(scenario, name, 2);
      const leading = relays.filter((relay) => relay.stats().leading);
      expect(leading).toHaveLength(1);
      await nextEvent(leading[0] as never, 'maintained');
      for (const relay of relays) {
        expect(relay.stats().maintenance.length > 0, 'only the leader did anything').toBe(relay.stats().leading);
      }
      const names = await scenario.db.query(
        `select distinct application_name as name from pg_stat_activity
          where datname = current_database() and application_name like 'postcommit maintenance%'`,
      );
      const leaderName = (await leader(scenario))?.name;
      for (const { name } of names) expect(name).toBe(`postcommit maintenance ${leaderName}`);
    }),
  );

  test(
    'killed, it is replaced within its lease and a heartbeat, under a new epoch',
    withScenario(async (scenario) => {
      const child = await scenario.child('first', options);
      await untilLeads(scenario, 'first');
      const second = await scenario.relay('second', options);
      await beats(scenario, 'second', 2);
      expect(second.stats().leading).toBe(false);
      const taken = nextEvent<{ epoch: string }>(second, 'leading', 20_000);
      const killedAt = performance.now();
      child.kill('SIGKILL');
      expect((await taken).epoch).toBe('2');
      // A lease and a third; the rest is for a machine that is busy.
      expect(performance.now() - killedAt).toBeLessThan(leaseMs * (4 / 3) + 3_000);
      await nextEvent<MaintenanceRun>(second, 'maintained');
    }),
  );

  test(
    'stalled past its lease, it cannot write down what it did, and notices that it was deposed',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const stalled = await scenario.relay('stalled', { ...options, connectionString: proxy.url(scenario.db.url) });
      await untilLeads(scenario, 'stalled');
      const told: unknown[] = [];
      const writes = proxy.holdRequest({ text: /outbox_maintenance as m/ });
      await within(writes.caught, { what: 'it is about to write' });
      stalled.on('maintained', (run) => told.push(run));
      proxy.stall('control');
      proxy.stall('heartbeat');
      const successor = await scenario.relay('successor', options);
      await nextEvent(successor, 'leading', 20_000);
      await nextEvent(successor, 'maintained');
      expect(stalled.stats().leading).toBe(false);
      const deposed = nextEvent<{ epoch: string }>(stalled, 'deposed', 20_000);
      writes.release();
      proxy.resume('control');
      proxy.resume('heartbeat');
      expect((await deposed).epoch).toBe('1');
      expect(told).toEqual([]);
      const epochs = await scenario.db.query('select distinct epoch from postcommit.outbox_maintenance');
      expect(epochs).toEqual([{ epoch: '2' }]);
      expect(await leader(scenario)).toEqual({ name: 'successor', epoch: '2' });
    }),
  );

  test(
    'stopped, it leaves the duty to the next relay that asks, before its lease ends',
    withScenario(async (scenario) => {
      const long = { ...options, leaseMs: 9_000 };
      const first = await scenario.relay('first', long);
      await untilLeads(scenario, 'first');
      const second = await scenario.relay('second', long);
      const leading = nextEvent(second, 'leading', 20_000);
      await first.stop();
      // Free, unless the second relay has already taken it.
      const [{ free }] = await scenario.db.query(
        'select lease_until < now() or epoch > 1 as free from postcommit.outbox_leadership',
      );
      expect(free).toBe(true);
      await leading;
      expect(await leader(scenario)).toEqual({ name: 'second', epoch: '2' });
    }),
  );

  test(
    'whatever the clocks of the hosts say',
    withScenario(async (scenario) => {
      await scenario.relay('here', options);
      await untilLeads(scenario, 'here');
      await scenario.child('ahead', options, { clockSkewMs: 3_600_000 });
      await beats(scenario, 'ahead', 3);
      expect(await leader(scenario)).toEqual({ name: 'here', epoch: '1' });
    }),
  );

  test(
    'with maintenance: false no relay leads',
    withScenario(async (scenario) => {
      const relay = await scenario.relay('one', { ...options, maintenance: false });
      await beats(scenario, 'one', 3);
      expect(relay.stats()).toMatchObject({ leading: false, maintenance: [] });
      expect(await scenario.db.query('select from postcommit.outbox_leadership')).toEqual([]);
      expect(await scenario.db.query('select from postcommit.outbox_maintenance')).toEqual([]);
    }),
  );
});
