import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { seededRandom } from '../support/random.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { nextEvent, until } from '../support/wait.ts';

const fast = { handlers: {}, pollIntervalMs: 50 };
const quick = (publisher: ScriptedPublisher) => ({ publisher, probeDelayMs: 50, probeDelayMsMax: 100 });
const ids = (publisher: ScriptedPublisher) => publisher.received.map(({ eventId }) => eventId);
const broken = () => {
  throw new Error('not yet');
};

async function shelved(scenario: RelayScenario): Promise<number> {
  return (await scenario.db.query('select count(*)::integer as n from postcommit.outbox_shelf'))[0].n;
}

/** Until nothing is in the queue or on the shelf: looked at in one statement, as an event may be on its way. */
async function settled(scenario: RelayScenario): Promise<void> {
  const left = `select (select count(*) from postcommit.outbox_queue) + (select count(*) from postcommit.outbox_shelf) as n`;
  await until(async () => (await scenario.db.query(left))[0].n === '0', { what: 'nothing is left', timeoutMs: 30_000 });
}

/** So many events of their own aggregates each wait for kafka, and have reached the webhook. */
async function shelveForKafka(scenario: RelayScenario, count: number, drainRateMax = 10_000) {
  const [kafka, hook] = [new ScriptedPublisher(), new ScriptedPublisher()];
  kafka.mood = 'away';
  const destinations = { kafka: { ...quick(kafka), drainRateMax }, hook: quick(hook) };
  const relay = await scenario.relay('new', { ...fast, destinations });
  const sent = await scenario.emit(Array.from({ length: count }, (_, n) => ({ aggregateId: `a${n}` })));
  await until(async () => (await shelved(scenario)) === count, { what: 'all wait for kafka' });
  return { kafka, hook, relay, sent };
}

describe('during a rolling deployment', () => {
  test(
    'events that waited for a destination reach it, though a relay without it takes part',
    withScenario(async (scenario) => {
      const { kafka, hook, sent } = await shelveForKafka(scenario, 100, 30);
      // Relays of the version before, which has no kafka.
      for (const name of ['old-1', 'old-2']) {
        await scenario.relay(name, { ...fast, pollIntervalMs: 10, destinations: { hook: quick(hook) } });
      }
      kafka.mood = 'up';
      await settled(scenario);
      expect(ids(kafka).sort()).toEqual([...sent].sort());
      expect(hook.received).toHaveLength(100);
      const deliveries = await scenario.db.query(`select distinct targets from postcommit.outbox_deliveries`);
      expect(deliveries).toEqual([{ targets: ['hook', 'kafka'] }]);
    }),
  );

  test(
    'a failed attempt is repeated by a relay that has the handler which failed',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      let healed = false;
      const added = () => {
        calls.push('added');
        if (!healed) broken();
      };
      const mail = () => void calls.push('mail');
      const retry = { delaysMs: Array(100).fill(20) };
      const current = await scenario.relay('new', {
        pollIntervalMs: 50,
        retry,
        handlers: { scripted: { mail, added } },
      });
      await scenario.emitLine('a', 3);
      await nextEvent(current, 'failed');
      for (const name of ['old-1', 'old-2']) {
        await scenario.relay(name, { pollIntervalMs: 20, retry, handlers: { scripted: { mail } } });
      }
      // Many chances for the others to take it.
      await until(() => calls.filter((call) => call === 'added').length > 15, { what: 'it was tried often' });
      healed = true;
      await scenario.drained();
      const deliveries = await scenario.db.query(
        `select array(select unnest(targets) t order by t) as targets from postcommit.outbox_deliveries where seqs @> 1::bigint`,
      );
      expect(deliveries).toEqual([{ targets: ['added', 'mail'] }]);
    }),
  );

  test(
    'order holds at each destination, whichever version takes an event',
    withScenario(async (scenario) => {
      const [kafka, hook] = [new ScriptedPublisher(), new ScriptedPublisher()];
      const both = { kafka: quick(kafka), hook: quick(hook) };
      const current = await scenario.relay('new', { ...fast, destinations: both });
      kafka.mood = 'away';
      const waiting = await scenario.emitLine('a', 50);
      await until(async () => (await shelved(scenario)) === 50, { what: 'all wait for kafka' });
      await scenario.relay('old', { ...fast, destinations: { hook: quick(hook) } });
      kafka.mood = 'up';
      await until(() => kafka.received.length > 0, { what: 'the drain has begun' });
      await current.stop();
      const more = await scenario.emitLine('a', 50);
      await until(() => hook.received.length === 100, { what: 'the webhook has all' });
      await scenario.relay('new again', { ...fast, destinations: both });
      await settled(scenario);
      expect([...new Set(ids(hook))]).toEqual([...waiting, ...more]);
      // What the old version took first was never meant for kafka; what was meant for it arrives, in order.
      const arrived = [...new Set(ids(kafka))];
      expect(arrived).toEqual([...waiting, ...more].filter((id) => arrived.includes(id)));
      expect(arrived).toEqual(expect.arrayContaining(waiting));
    }),
  );
});

describe('after a rollback', () => {
  test(
    'what waits for a destination that no relay has stays on the shelf until one has it, and holds nothing up',
    withScenario(async (scenario) => {
      const { kafka, hook, relay, sent } = await shelveForKafka(scenario, 20);
      await relay.stop();
      await scenario.db.query(`update postcommit.outbox_destinations set probe_at = now() - interval '2 minutes'`);
      const old = await scenario.relay('old', { ...fast, destinations: { hook: quick(hook) } });
      const later = await scenario.emit(Array.from({ length: 20 }, (_, n) => ({ aggregateId: `a${n}` })));
      await until(() => hook.received.length === 40, { what: 'the same aggregates go on' });
      await scenario.drained();
      expect(await shelved(scenario)).toBe(20);
      expect(
        await scenario.db.query(`select state from postcommit.outbox_destinations where destination = 'kafka'`),
      ).toEqual([{ state: 'open' }]);
      kafka.mood = 'up';
      await old.stop();
      await scenario.relay('new', { ...fast, destinations: { kafka: quick(kafka), hook: quick(hook) } });
      await settled(scenario);
      expect(ids(kafka).sort()).toEqual([...sent].sort());
      expect(ids(hook).sort()).toEqual([...sent, ...later].sort());
    }),
  );

  test(
    'what was on its way back from the shelf returns there, without an attempt, and its aggregate continues',
    withScenario(async (scenario) => {
      const { relay, hook, sent } = await shelveForKafka(scenario, 5);
      await relay.stop();
      // As a relay leaves them that is stopped in the middle of a drain.
      await scenario.db.query(
        `with gone as (delete from postcommit.outbox_shelf returning *)
         insert into postcommit.outbox_queue (seq, key, attempts, done, owed)
         select seq, key, attempts, done, array[destination] from gone`,
      );
      await scenario.relay('handlers only', { pollIntervalMs: 50, handlers: { other: { noop: () => {} } } });
      await until(async () => (await shelved(scenario)) === 5, { what: 'all are on the shelf' });
      const [row] = await scenario.db.query(
        `select min(attempts) as attempts, array_agg(distinct done) as done from postcommit.outbox_shelf`,
      );
      expect(row).toEqual({ attempts: 0, done: [['hook']] });
      expect(await scenario.db.query('select from postcommit.outbox_failures')).toEqual([]);
      const [later] = await scenario.emit([{ aggregateId: 'a0', type: 'other' }]);
      await scenario.drained();
      const admin = createOutbox({ db: fromPg(scenario.db.pool) }).admin;
      expect(await admin.find(later as string)).toMatchObject({ status: 'SENT' });
      expect(await admin.find(sent[0] as string)).toMatchObject({ status: 'PENDING', waitingFor: ['kafka'] });
      expect(hook.received).toHaveLength(5);
    }),
  );

  test(
    'a dead letter that is retried waits for the target it is owed to',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      const mail = () => void calls.push('mail');
      const admin = createOutbox({ db: fromPg(scenario.db.pool) }).admin;
      const current = await scenario.relay('new', {
        ...fast,
        retry: { delaysMs: [] },
        handlers: { scripted: { mail, added: broken } },
      });
      const [id] = (await scenario.emitLine('a', 1)) as [string];
      await until(() => current.stats().deadLettered === 1, { what: 'it is dead' });
      await current.stop();
      const old = await scenario.relay('old', { ...fast, handlers: { scripted: { mail } } });
      expect(await admin.retry({ ids: [id] })).toEqual({ count: 1 });
      // Another aggregate: the old relay has looked at the queue since.
      await scenario.emitLine('b', 1);
      await until(() => old.stats().delivered === 1, { what: 'the old one works' });
      expect(await admin.find(id)).toMatchObject({ status: 'PENDING', done: ['mail'], owed: ['scripted:added'] });
      await scenario.relay('new again', {
        ...fast,
        handlers: { scripted: { mail, added: () => void calls.push('added') } },
      });
      await scenario.drained();
      expect(calls).toEqual(['mail', 'mail', 'added']);
    }),
  );

  test.each([
    ['destination', 'hook', ['hook']],
    ['handler', 'scripted:mail', ['mail', 'hook']],
    ['handler that the relay lacks', 'scripted:gone', ['gone', 'hook', 'mail']],
  ])('a %s that has an event already is not owed it, whatever the row says', async (_what, owed, done) => {
    await withScenario(async (scenario) => {
      const hook = new ScriptedPublisher();
      const calls: string[] = [];
      const relay = scenario.idleRelay('one', {
        ...fast,
        handlers: { scripted: { mail: () => void calls.push('mail') } },
        destinations: { hook: quick(hook) },
      });
      await scenario.emitLine('a', 1);
      const owes = owed === 'scripted:gone' ? [owed, 'hook'] : [owed];
      await scenario.db.query('update postcommit.outbox_queue set owed = $1, done = $2', [owes, done]);
      expect(await relay.runOnce()).toMatchObject({ delivered: 1, failed: 0 });
      expect(await scenario.db.query('select targets from postcommit.outbox_deliveries')).toEqual([{ targets: done }]);
      expect([...calls, ...hook.received]).toEqual([]);
    })();
  });

  test(
    'a destination that route no longer names is not left out: the event fails, and a relay that names it delivers',
    withScenario(async (scenario) => {
      const [kafka, hook] = [new ScriptedPublisher(), new ScriptedPublisher()];
      kafka.mood = 'away';
      const destinations = { kafka: quick(kafka), hook: quick(hook) };
      const current = await scenario.relay('new', { ...fast, destinations });
      const sent = await scenario.emitLine('a', 1);
      await until(async () => (await shelved(scenario)) === 1, { what: 'it waits for kafka' });
      await current.stop();
      kafka.mood = 'up';
      const old = scenario.idleRelay('old', {
        ...fast,
        destinations,
        route: () => ({ to: 'hook' }),
        retry: { delaysMs: Array(100).fill(20) },
      });
      const retried = nextEvent(old, 'failed');
      await old.start();
      expect(await retried).toMatchObject({ target: 'kafka', error: expect.stringContaining('no longer returns') });
      await old.stop();
      await scenario.relay('new again', { ...fast, destinations });
      await settled(scenario);
      expect(ids(kafka)).toEqual(sent);
      expect(ids(hook)).toEqual(sent);
    }),
  );
});

describe('relays that have different targets', () => {
  test(
    'come and go, and so do their destinations: what an event was to reach it reaches, in order',
    withScenario(async (scenario) => {
      const random = seededRandom();
      const names = ['x', 'y', 'z'] as const;
      const brokers: Record<string, { id: string; key: string | null }[]> = { x: [], y: [], z: [] };
      const moods: Record<string, 'up' | 'away'> = { x: 'up', y: 'up', z: 'up' };
      let calm = false;
      const publisherOf = (name: string) => {
        const publisher = new ScriptedPublisher({ batchSizeMax: random.integer(1, 20), keyRuns: random.chance(0.5) });
        publisher.outcomeOf = ({ eventId, key }) => {
          if (moods[name] === 'away') return { kind: 'unavailable', reason: 'away' };
          if (!calm && random.chance(0.05)) return { kind: 'failed', reason: 'not now' };
          brokers[name]?.push({ id: eventId, key });
          return { kind: 'delivered' };
        };
        publisher.health = async () => {
          if (moods[name] === 'away') throw new Error('away');
        };
        return quick(publisher);
      };
      /** Whatever an event was shelved for, or failed at, it must reach. */
      const owed: { id: string; to: string }[] = [];
      let started = 0;
      const start = async (some: readonly string[]) => {
        const relay = scenario.idleRelay(`r${++started}`, {
          ...fast,
          retry: { delaysMs: Array(500).fill(15) },
          noHandler: 'retry',
          destinations: Object.fromEntries(some.map((name) => [name, publisherOf(name)])),
        });
        relay.on('unavailable', ({ eventId, waitsFor }) => owed.push(...waitsFor.map((to) => ({ id: eventId, to }))));
        relay.on('failed', ({ eventId, target }) => target !== null && owed.push({ id: eventId, to: target }));
        await relay.start();
        return relay;
      };
      const anySet = () => random.pick([['x', 'y', 'z'], ['x', 'y'], ['x'], ['y', 'z'], ['z']]);
      const relays = [await start(names), await start(anySet())];
      const sent: string[] = [];
      for (let round = 0; round < 30; round++) {
        sent.push(
          ...(await scenario.emit(
            Array.from({ length: random.integer(1, 25) }, () => ({ aggregateId: `k${random.integer(0, 4)}` })),
          )),
        );
        if (random.chance(0.5)) moods[random.pick(names)] = random.pick(['up', 'away']);
        if (random.chance(0.3)) {
          await relays.shift()?.stop();
          relays.push(await start(anySet()));
        }
      }
      calm = true;
      for (const name of names) moods[name] = 'up';
      await start(names);
      await settled(scenario);
      expect(await scenario.db.query('select from postcommit.outbox_dead_letters')).toEqual([]);
      expect(owed.length, 'some were owed').toBeGreaterThan(20);
      for (const name of names) {
        const got = new Set(brokers[name]?.map(({ id }) => id));
        expect(owed.filter(({ id, to }) => to === name && !got.has(id))).toEqual([]);
        for (let key = 0; key <= 4; key++) {
          // The first arrival of each: a relay that is stopped may have sent what it could not write down.
          const arrived = [...new Set(brokers[name]?.filter((each) => each.key === `k${key}`).map(({ id }) => id))];
          expect(arrived, `${name}, k${key}`).toEqual(sent.filter((id) => arrived.includes(id)));
        }
      }
    }),
    60_000,
  );

  test(
    'each do their part of an event',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      const [kafka, hook] = [new ScriptedPublisher(), new ScriptedPublisher()];
      kafka.mood = 'away';
      hook.mood = 'away';
      const retry = { delaysMs: [0, 20, 20, 20] };
      const first = await scenario.relay('all', {
        ...fast,
        retry,
        handlers: { scripted: { one: broken, two: broken } },
        destinations: { kafka: quick(kafka), hook: quick(hook) },
      });
      const sent = await scenario.emitLine('a', 1);
      await nextEvent(first, 'failed');
      await first.stop();
      kafka.mood = 'up';
      hook.mood = 'up';
      await scenario.relay('one', {
        ...fast,
        handlers: { scripted: { one: () => void calls.push('one') } },
        destinations: { kafka: quick(kafka) },
      });
      await scenario.relay('two', {
        ...fast,
        handlers: { scripted: { two: () => void calls.push('two') } },
        destinations: { hook: quick(hook) },
      });
      await settled(scenario);
      expect(calls.sort()).toEqual(['one', 'two']);
      expect([ids(kafka), ids(hook)]).toEqual([sent, sent]);
      const [{ targets }] = await scenario.db.query('select targets from postcommit.outbox_deliveries');
      expect([...targets].sort()).toEqual(['hook', 'kafka', 'one', 'two']);
    }),
  );
});
