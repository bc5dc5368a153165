import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { unshelve } from '../../src/outbox/delivering/unshelve.ts';
import { createDatabaseWithClock } from '../support/database-clock.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const hourMs = 3_600_000;
const leaseMs = 1_500;
const options = { leaseMs, inFlightMax: 2, batchSizeMax: 2, prefetchMax: 2, pollIntervalMs: 100 };

/** A scenario in a database whose clock can be set. */
function withClock(test: (scenario: RelayScenario, shift: (ms: number) => Promise<void>) => Promise<void>) {
  return async () => {
    const { db, shift } = await createDatabaseWithClock();
    const scenario = new RelayScenario(db);
    try {
      await test(scenario, shift);
    } finally {
      await scenario.close();
    }
  };
}

async function lostRelays(scenario: RelayScenario): Promise<string[]> {
  const rows = await scenario.db.query(`select name from postcommit.outbox_relays where ended_as = 'lost'`);
  return rows.map(({ name }) => name);
}

const beganIn = (scenario: RelayScenario, relay: string) =>
  scenario.journal.read().filter((entry) => entry.phase === 'begin' && entry.relay === relay).length;

describe('G11 one clock: the database’s clock is set back by an hour', () => {
  test(
    'a relay that dies is declared lost within a few leases, and its maintenance is taken over',
    withClock(async (scenario, shift) => {
      const victim = await scenario.child('victim', { ...options, maintenance: { intervalMs: 100 } });
      await until(async () => (await scenario.db.query('select from postcommit.outbox_leadership')).length === 1, {
        what: 'the victim leads',
      });
      await scenario.emit([{ aggregateId: 'stuck', script: { hangIn: 'victim' } }]);
      await until(() => beganIn(scenario, 'victim') === 1, { what: 'the victim has it' });
      victim.kill('SIGKILL');
      await shift(-hourMs);
      const survivor = await scenario.relay('survivor', { ...options, maintenance: { intervalMs: 100 } });
      await scenario.drained(6 * leaseMs);
      expect(await lostRelays(scenario)).toEqual(['victim']);
      await until(() => survivor.stats().leading, { what: 'the survivor leads', timeoutMs: 4 * leaseMs });
    }),
  );

  test(
    'relays that run on stay alive, and one of them that dies afterwards is declared lost',
    withClock(async (scenario, shift) => {
      const victim = await scenario.child('victim', options);
      await scenario.relay('watcher', options);
      await shift(-hourMs);
      const script = { workMs: 2 * leaseMs };
      await scenario.emit(Array.from({ length: 4 }, (_, n) => ({ aggregateId: `slow-${n}`, script })));
      await scenario.drained();
      expect(await lostRelays(scenario)).toEqual([]);
      expect(await scenario.findings()).toMatchObject({ lost: [], duplicates: 0 });
      victim.kill('SIGKILL');
      await until(async () => (await lostRelays(scenario)).includes('victim'), {
        what: 'the victim is declared lost',
        timeoutMs: 6 * leaseMs,
      });
    }),
  );

  test(
    'a destination that is down is probed soon, and what waited for it is sent',
    withClock(async (scenario, shift) => {
      const publisher = new ScriptedPublisher();
      publisher.mood = 'away';
      const destinations = { broker: { publisher, probeDelayMs: 20, probeDelayMsMax: 100 } };
      const route = () => ({ to: 'broker', topic: 't' });
      const relay = await scenario.relay('one', { ...options, handlers: {}, destinations, route });
      await scenario.emit(Array.from({ length: 5 }, (_, n) => ({ aggregateId: `a${n}` })));
      await until(async () => (await scenario.db.query('select from postcommit.outbox_shelf')).length === 5, {
        what: 'all are on the shelf',
      });
      await shift(-hourMs);
      publisher.mood = 'up';
      await until(() => publisher.received.length === 5, { what: 'all were sent', timeoutMs: 10 * leaseMs });
      await relay.stop();
    }),
  );

  test(
    'a drain continues: no negative LIMIT, and the rate is kept',
    withClock(async (scenario, shift) => {
      const { db } = scenario;
      await scenario.emit(Array.from({ length: 20 }, (_, n) => ({ aggregateId: `a${n}` })));
      await db.query(`insert into postcommit.outbox_destinations (destination, unshelved_at) values ('broker', now())`);
      await db.query(`with gone as (delete from postcommit.outbox_queue returning *)
        insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
        select 'broker', seq, key, attempts, takeovers from gone`);
      await shift(-hourMs);
      const request = { destination: 'broker', rateMax: 1_000, countMax: 5 };
      expect(await unshelve(db.pool, 'postcommit', request)).toBe(0);
      await scenario.relay('one', { ...options, handlers: { other: { ignore: () => {} } }, noHandler: 'retry' });
      await until(async () => (await unshelve(db.pool, 'postcommit', request)) > 0, { what: 'the drain continues' });
    }),
  );

  test(
    'a bulk retry takes the dead letters of the hour that comes again',
    withClock(async (scenario, shift) => {
      const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
      await scenario.emit([{ aggregateId: 'poison', script: { failTimes: 1 } }]);
      await scenario.relay('one', { ...options, retry: { delaysMs: [] } });
      await until(async () => (await admin.counts()).failed === 1, { what: 'it is dead' });
      await shift(-hourMs);
      expect(await admin.retry({ type: 'scripted' })).toEqual({ count: 1 });
      await scenario.drained();
    }),
  );
});

describe('G11 one clock: the database’s clock is set forward by an hour', () => {
  test(
    'no live relay is declared lost, nothing is delivered twice, and one that dies is still noticed',
    withClock(async (scenario, shift) => {
      const names = ['a', 'b', 'c'];
      let emitted = 0;
      const children = await Promise.all(names.map((name) => scenario.child(name, options)));
      const takeovers = children.map((child) => () => child.messages.filter(({ event }) => event === 'relayLost'));
      for (let turn = 0; turn < 3; turn++) {
        const before = names.map((name) => beganIn(scenario, name));
        // A relay that is slow to claim finds nothing left: emit until each of the three works on something.
        await until(
          async () => {
            const atWork = names.every((name, index) => beganIn(scenario, name) > (before[index] ?? 0));
            if (!atWork && (await scenario.queued()) < 12) {
              const script = { workMs: leaseMs };
              await scenario.emit(names.map(() => ({ aggregateId: `slow-${emitted++}`, script })));
            }
            return atWork;
          },
          { what: 'all three are at work', timeoutMs: 30_000 },
        );
        await shift(hourMs);
        await scenario.drained();
      }
      expect(await lostRelays(scenario)).toEqual([]);
      expect(takeovers.flatMap((seen) => seen())).toEqual([]);
      expect(await scenario.findings()).toMatchObject({ lost: [], overlaps: [], duplicates: 0 });

      children[0]?.kill('SIGKILL');
      await until(async () => (await lostRelays(scenario)).includes('a'), {
        what: 'the killed relay is declared lost',
        timeoutMs: 8 * leaseMs,
      });
    }),
  );
});
