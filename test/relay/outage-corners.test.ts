import { describe, expect, test } from 'vitest';
import { readCircuits } from '../../src/outbox/delivering/circuit.ts';
import { claimSql } from '../../src/outbox/delivering/claim.ts';
import { nestedPlans } from '../support/plans.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const fast = { handlers: {}, pollIntervalMs: 50 };
const quick = (publisher: ScriptedPublisher) => ({ publisher, probeDelayMs: 50, probeDelayMsMax: 100 });
const ids = (publisher: ScriptedPublisher) => publisher.received.map(({ eventId }) => eventId);

async function shelved(scenario: RelayScenario): Promise<number> {
  return (await scenario.db.query('select count(*)::integer as n from postcommit.outbox_shelf'))[0].n;
}

describe('after an outage', () => {
  test(
    'runOnce() waits for its probe, and brings everything that waited',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.mood = 'away';
      events.connect = async () => {};
      const health = events.health.bind(events);
      events.health = async () => {
        // Longer than the look at the queue that is taken beside it.
        for (let trip = 0; trip < 100; trip++) await scenario.db.query('select');
        await health();
      };
      const relay = scenario.idleRelay('r', { ...fast, destinations: { events: quick(events) } });
      const sent = await scenario.emitLine('a', 3_000);
      await relay.runOnce();
      expect(await shelved(scenario)).toBe(3_000);
      events.mood = 'up';
      await scenario.db.query('update postcommit.outbox_destinations set probe_at = now()');
      expect(await relay.runOnce()).toEqual({ delivered: 3_000, failed: 0, deadLettered: 0, complete: true });
      expect(ids(events)).toEqual(sent);
    }),
  );

  test(
    'events of a destination that no relay has any more wait until one has it, also if its circuit is open',
    withScenario(async (scenario) => {
      const [old, current] = [new ScriptedPublisher(), new ScriptedPublisher()];
      old.mood = 'away';
      const first = await scenario.relay('first', { ...fast, destinations: { old: quick(old) } });
      const sent = await scenario.emitLine('a', 5);
      await until(async () => (await shelved(scenario)) === 5, { what: 'they wait' });
      await first.stop();
      await scenario.db.query(`update postcommit.outbox_destinations set probe_at = now() - interval '2 minutes'`);
      const second = scenario.idleRelay('second', { ...fast, destinations: { current } });
      for (let run = 0; run < 3; run++) await second.runOnce();
      expect(current.received).toEqual([]);
      expect(await shelved(scenario)).toBe(5);
      old.mood = 'up';
      await scenario.relay('third', { ...fast, destinations: { old: quick(old) } });
      await until(() => old.received.length === 5, { what: 'they have arrived' });
      expect(ids(old)).toEqual(sent);
    }),
  );

  test(
    'a drain keeps to its rate, however small it is and however many relays there are',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.mood = 'away';
      const destinations = { events: { ...quick(events), drainRateMax: 5 } };
      for (const name of ['a', 'b', 'c']) await scenario.relay(name, { ...fast, destinations });
      await scenario.emit(Array.from({ length: 100 }, (_, n) => ({ aggregateId: `x${n}` })));
      await until(async () => (await shelved(scenario)) === 100, { what: 'they wait' });
      events.mood = 'up';
      await until(() => events.received.length > 0, { what: 'the drain has begun' });
      const begun = performance.now();
      await until(() => events.received.length >= 15, { what: 'fifteen have arrived', timeoutMs: 20_000 });
      // At five a second: two seconds and more, with what a turn may bring at once.
      expect(performance.now() - begun).toBeGreaterThan(1_500);
    }),
  );

  test(
    'an aggregate with a long backlog fills batches again, also if it had reached another destination',
    withScenario(async (scenario) => {
      const [away, up] = [new ScriptedPublisher({ batchSizeMax: 500 }), new ScriptedPublisher({ batchSizeMax: 500 })];
      away.mood = 'away';
      await scenario.relay('r', { ...fast, destinations: { away: quick(away), up: quick(up) } });
      const sent = await scenario.emitLine('hot', 3_000);
      await until(async () => (await shelved(scenario)) === 3_000, { what: 'all wait', timeoutMs: 30_000 });
      const before = away.batches.length;
      away.mood = 'up';
      await until(() => away.received.length === 3_000, { what: 'all have arrived', timeoutMs: 30_000 });
      expect(ids(away)).toEqual(sent);
      expect(ids(up)).toEqual(sent);
      expect(away.batches.length - before).toBeLessThan(300);
    }),
  );
});

describe('between relays and destinations', () => {
  test(
    'a relay that cannot reach the broker leaves it to one that can',
    withScenario(async (scenario) => {
      const [cut, fine] = [new ScriptedPublisher(), new ScriptedPublisher()];
      cut.mood = 'away';
      await scenario.relay('cut', { ...fast, destinations: { events: quick(cut) } });
      await scenario.relay('fine', { ...fast, destinations: { events: quick(fine) } });
      const sent: string[] = [];
      for (let round = 0; round < 20; round++) sent.push(...(await scenario.emitLine('a', 10)));
      await until(() => fine.received.length === 200, { what: 'all have arrived', timeoutMs: 30_000 });
      expect(ids(fine)).toEqual(sent);
      expect(cut.received).toEqual([]);
    }),
  );

  test(
    'a slow destination does not fill the relay: a fast one gets its events at once',
    withScenario(async (scenario) => {
      const [slow, quickly] = [new ScriptedPublisher({ batchSizeMax: 100 }), new ScriptedPublisher()];
      slow.tookMs = 1_500;
      await scenario.relay('r', {
        ...fast,
        destinations: { slow, quickly },
        route: ({ type }) => ({ to: type }),
      });
      await scenario.emit(Array.from({ length: 6_000 }, (_, n) => ({ aggregateId: `s${n}`, type: 'slow' })));
      await until(() => slow.underWay > 0, { what: 'it is busy' });
      for (let round = 0; round < 3; round++) {
        const [id] = await scenario.emit([{ aggregateId: `q${round}`, type: 'quickly' }]);
        await until(() => ids(quickly).includes(id as string), {
          what: 'the fast one has its event',
          timeoutMs: 5_000,
        });
      }
      await until(() => slow.received.length >= 400, { what: 'the slow one continues', timeoutMs: 30_000 });
    }),
  );

  test(
    'a database without a shelf is refused, with handlers only too',
    withScenario(async (scenario) => {
      await scenario.db.query('drop table postcommit.outbox_shelf cascade');
      await expect(scenario.idleRelay('r').start()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    }),
  );
});

describe('a shelf of 100,000 events of one aggregate', () => {
  test(
    'costs a claim of that aggregate, and reading the destination state, next to nothing',
    withScenario(async (scenario) => {
      const { pool } = scenario.db;
      await scenario.db.query(`insert into postcommit.outbox_destinations (destination) values ('away'), ('up')`);
      await scenario.emitLine('hot', 501);
      const [{ key }] = await scenario.db.query('select key from postcommit.outbox_queue limit 1');
      await scenario.db.query(
        `insert into postcommit.outbox_shelf (destination, seq, key, attempts, rescues)
         select 'away', -n, $1::bigint, 0, 0 from generate_series(1, 100000) n`,
        [key],
      );
      await scenario.db.query('analyze postcommit.outbox_shelf');
      const [relay] = await scenario.db.query(
        `insert into postcommit.outbox_relays (name, host, pid, lease_until) values ('r', 'h', 1, now() + interval '1 hour')
         returning token`,
      );
      const client = await pool.connect();
      const plans = await nestedPlans(client, claimSql('postcommit'), [
        relay.token,
        '0',
        500,
        1,
        [],
        16_384,
        null,
        '0',
        '0',
        '',
        true,
        false,
        1,
        [],
        'default',
      ]);
      client.release();
      // Some dozen blocks an event, and not the shelf for each of them.
      const blocks = plans.reduce(
        (sum, top) => sum + (top['Shared Hit Blocks'] ?? 0) + (top['Shared Read Blocks'] ?? 0),
        0,
      );
      expect(blocks).toBeGreaterThan(500);
      expect(blocks).toBeLessThan(25_000);
      const circuits = await readCircuits(pool, 'postcommit');
      expect(circuits.map(({ destination, hasShelved }) => [destination, hasShelved]).sort()).toEqual([
        ['away', true],
        ['up', false],
      ]);
    }),
  );
});
