import { describe, expect, test } from 'vitest';
import { listDestinations } from '../../src/outbox/operating/list-destinations.ts';
import { pauseDestination, resumeDestination } from '../../src/outbox/operating/pause-destination.ts';
import { seededRandom } from '../support/random.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const fast = { handlers: {}, pollIntervalMs: 50, listen: true };
const quick = (publisher: ScriptedPublisher) => ({ publisher, probeDelayMs: 50, probeDelayMsMax: 200 });

const ids = (publisher: ScriptedPublisher) => publisher.received.map(({ eventId }) => eventId);

async function shelved(scenario: RelayScenario, destination?: string): Promise<number> {
  const [row] = await scenario.db.query(
    `select count(*)::integer as n from postcommit.outbox_shelf where $1::text is null or destination = $1`,
    [destination ?? null],
  );
  return row.n;
}

async function attemptsUsed(scenario: RelayScenario) {
  const [row] = await scenario.db.query(
    `select (select count(*) from postcommit.outbox_failures)::integer as failures,
            (select count(*) from postcommit.outbox_dead_letters)::integer as dead,
            (select count(*) from postcommit.outbox_deliveries where attempts > 1)::integer as later`,
  );
  return row;
}
const none = { failures: 0, dead: 0, later: 0 };

async function settled(scenario: RelayScenario): Promise<void> {
  // In one statement: an event may be on its way from the shelf to the queue.
  const left = `select (select count(*) from postcommit.outbox_queue) + (select count(*) from postcommit.outbox_shelf) as n`;
  await until(async () => (await scenario.db.query(left))[0].n === '0', {
    what: 'nothing is left to do',
    timeoutMs: 40_000,
  });
}

describe('G6: an outage is not poison', () => {
  test(
    'events wait without losing an attempt, and arrive in order when the destination is up again',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const relay = await scenario.relay('r', { ...fast, destinations: { events: quick(events) } });
      const before = await scenario.emitLine('a', 20);
      await until(() => events.received.length === 20, { what: 'all is well' });
      events.mood = 'away';
      const during = [...(await scenario.emitLine('a', 200)), ...(await scenario.emitLine('b', 50))];
      await until(async () => (await shelved(scenario)) === 250, { what: 'all wait' });
      expect(await scenario.db.query(`select distinct status from postcommit.outbox_status`)).toEqual(
        expect.arrayContaining([{ status: 'PENDING' }, { status: 'SENT' }]),
      );
      events.mood = 'up';
      const after = await scenario.emitLine('a', 20);
      await settled(scenario);
      const ofA = ids(events).filter((id) => !during.slice(200).includes(id));
      expect(ofA).toEqual([...before, ...during.slice(0, 200), ...after]);
      expect(events.received).toHaveLength(290);
      expect(await attemptsUsed(scenario)).toEqual(none);
      expect(relay.stats()).toMatchObject({ failed: 0, deadLettered: 0 });
    }),
  );

  test(
    'one destination down never delays another, nor a handler, for the very same aggregates',
    withScenario(async (scenario) => {
      const [down, up] = [new ScriptedPublisher(), new ScriptedPublisher()];
      down.mood = 'away';
      const handled: string[] = [];
      await scenario.relay('r', {
        ...fast,
        handlers: { scripted: { collect: ({ id }) => handled.push(id) } },
        destinations: { down: quick(down), up: quick(up) },
      });
      const expected: string[] = [];
      for (let round = 0; round < 10; round++) expected.push(...(await scenario.emitLine('a', 20)));
      await until(() => up.received.length === 200 && handled.length === 200, { what: 'the others have all' });
      expect(down.received).toEqual([]);
      expect(ids(up)).toEqual(expected);
      expect(handled).toEqual(expected);
      down.mood = 'up';
      await settled(scenario);
      expect(ids(down)).toEqual(expected);
      expect([up.received.length, handled.length]).toEqual([200, 200]); // Nothing twice.
      expect(await attemptsUsed(scenario)).toEqual(none);
    }),
  );

  test(
    'a destination that accepts everything and never answers does not delay another for long, and becomes an outage',
    withScenario(async (scenario) => {
      const [silent, up] = [new ScriptedPublisher(), new ScriptedPublisher()];
      await scenario.relay('r', {
        ...fast,
        prefetchMax: 200,
        batchSizeMax: 100,
        destinations: { silent: { ...quick(silent), publishTimeoutMs: 6_000 }, up: quick(up) },
        route: ({ type }) => ({ to: type }),
      });
      silent.mood = 'silent';
      await scenario.emit(Array.from({ length: 1_000 }, (_, n) => ({ aggregateId: `s${n}`, type: 'silent' })));
      await until(() => silent.underWay > 0, { what: 'it hangs' });
      const begun = performance.now();
      await scenario.emit(Array.from({ length: 100 }, (_, n) => ({ aggregateId: `u${n}`, type: 'up' })));
      await until(() => up.received.length === 100, { what: 'the other one has all' });
      expect(performance.now() - begun).toBeLessThan(5_500); // Well before the first one's time is over.
      await until(async () => (await shelved(scenario, 'silent')) === 1_000, { what: 'all wait', timeoutMs: 20_000 });
      silent.mood = 'up';
      await settled(scenario);
      expect(silent.received).toHaveLength(1_000);
      expect(await attemptsUsed(scenario)).toEqual(none);
    }),
  );

  test(
    'relays share the circuit: one meets the outage, all wait, one at a time probes',
    withScenario(async (scenario) => {
      const [first, second] = [new ScriptedPublisher(), new ScriptedPublisher()];
      first.mood = 'away';
      second.mood = 'away';
      const down: string[] = [];
      const relays = [];
      for (const [name, publisher] of Object.entries({ first, second })) {
        const relay = scenario.idleRelay(name, {
          ...fast,
          destinations: { events: { publisher, probeDelayMs: 400, probeDelayMsMax: 400 } },
        });
        relay.on('destinationDown', ({ error }) => down.push(`${name}: ${error}`));
        relays.push(relay);
      }
      // The second relay learns of it only from outbox_destinations: its own connect would not fail.
      second.mood = 'up';
      await relays[0]?.start();
      await until(() => down.length === 1, { what: 'the first relay has failed to reach it' });
      const up: string[] = [];
      for (const relay of relays) relay.on('destinationUp', ({ destination }) => up.push(destination));
      await relays[1]?.start();
      await until(() => down.length === 2, { what: 'the second relay knows that it is down' });
      expect(down[1]).toContain('connection refused');
      // The probe of the second relay succeeds. The first one cannot reach it yet, and leaves it to the second.
      await until(() => up.length === 1, { what: 'the second relay knows that it is up', timeoutMs: 20_000 });
      first.mood = 'up';
      await until(() => up.length === 2, { what: 'the first relay has reached it too', timeoutMs: 20_000 });
      const sent = await scenario.emitLine('a', 30);
      await settled(scenario);
      expect([...ids(first), ...ids(second)].sort()).toEqual([...sent].sort());
      expect(await attemptsUsed(scenario)).toEqual(none);
    }),
  );

  test(
    'a destination that answers probes and takes nothing is reported down once, and is tried with single events',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.outcomeOf = () => ({ kind: 'unavailable', reason: 'accepts and never answers' });
      const relay = await scenario.relay('r', { ...fast, destinations: { events: quick(events) } });
      const told: string[] = [];
      relay.on('destinationDown', () => told.push('down'));
      relay.on('destinationUp', () => told.push('up'));
      const sent = await scenario.emitLine('a', 300);
      await until(() => events.batches.length >= 4, { what: 'it was tried some times', timeoutMs: 30_000 });
      expect(events.batches.slice(1)).toEqual(events.batches.slice(1).map(() => 1));
      const [listed] = await listDestinations(scenario.db.pool, 'postcommit');
      expect(listed).toMatchObject({ state: 'down', error: 'accepts and never answers', downSince: expect.any(Date) });
      expect(told).toEqual(['down']);
      events.outcomeOf = () => ({ kind: 'delivered' });
      await settled(scenario);
      expect(ids(events)).toEqual(sent);
      expect(told).toEqual(['down', 'up']);
      const [after] = await listDestinations(scenario.db.pool, 'postcommit');
      expect(after).toEqual({ name: 'events', state: 'up', waiting: 0, relays: 1 });
      expect(await attemptsUsed(scenario)).toEqual(none);
    }),
  );

  test(
    'what waited is sent at drainRateMax, new events of other aggregates at once',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.mood = 'away';
      await scenario.relay('r', { ...fast, destinations: { events: { ...quick(events), drainRateMax: 100 } } });
      await scenario.emit(Array.from({ length: 300 }, (_, n) => ({ aggregateId: `a${n}` })));
      await until(async () => (await shelved(scenario)) === 300, { what: 'all wait' });
      events.mood = 'up';
      await until(() => events.received.length > 0, { what: 'the drain began' });
      const begun = performance.now();
      const [fresh] = await scenario.emit([{ aggregateId: 'fresh' }]);
      await until(() => ids(events).includes(fresh as string), { what: 'the new one has arrived' });
      expect(events.received.length).toBeLessThan(200);
      await settled(scenario);
      // 300 at 100 a second: three seconds, less what had been sent when the clock was started.
      expect(performance.now() - begun).toBeGreaterThan(1_200);
      expect(events.received).toHaveLength(301);
    }),
  );

  test(
    'an operator pauses a destination and resumes it; its events wait meanwhile, others go on',
    withScenario(async (scenario) => {
      const [one, two] = [new ScriptedPublisher(), new ScriptedPublisher()];
      const relay = await scenario.relay('r', { ...fast, destinations: { one: quick(one), two: quick(two) } });
      const seen: string[] = [];
      relay.on('destinationPaused', ({ destination }) => seen.push(`paused ${destination}`));
      relay.on('destinationResumed', ({ destination }) => seen.push(`resumed ${destination}`));
      expect(await pauseDestination(scenario.db.pool, 'postcommit', 'one', 'maintenance')).toBe(true);
      await until(() => seen.includes('paused one'), { what: 'the relay obeys' });
      const sent = await scenario.emitLine('a', 10);
      await until(() => two.received.length === 10, { what: 'the other one has all' });
      expect(one.received).toEqual([]);
      expect(await resumeDestination(scenario.db.pool, 'postcommit', 'one')).toBe(true);
      await settled(scenario);
      expect(ids(one)).toEqual(sent);
      expect(seen).toEqual(['paused one', 'resumed one']);
      expect(await pauseDestination(scenario.db.pool, 'postcommit', 'three', '')).toBe(false);
    }),
  );

  test(
    'an outage outlives the relays, and what waits for a destination that no relay has is kept for it',
    withScenario(async (scenario) => {
      const [old, current] = [new ScriptedPublisher(), new ScriptedPublisher()];
      old.mood = 'away';
      const first = await scenario.relay('first', { ...fast, destinations: { old: quick(old) } });
      const sent = await scenario.emitLine('a', 5);
      await until(async () => (await shelved(scenario, 'old')) === 5, { what: 'all wait' });
      await first.stop();
      const second = scenario.idleRelay('second', { ...fast, destinations: { current: quick(current) } });
      await resumeDestination(scenario.db.pool, 'postcommit', 'old');
      for (let run = 0; run < 3; run++) await second.runOnce();
      expect(current.received).toEqual([]);
      old.mood = 'up';
      await scenario.relay('third', { ...fast, destinations: { old: quick(old) } });
      await settled(scenario);
      expect(ids(old)).toEqual(sent);
    }),
  );

  test(
    'whatever comes and goes: nothing lost, order per aggregate at each destination, no attempt used',
    withScenario(async (scenario) => {
      const random = seededRandom();
      // One broker each, reached by every relay through a publisher of its own.
      const names = ['x', 'y'] as const;
      const brokers = Object.fromEntries(names.map((name) => [name, [] as { id: string; key: string | null }[]]));
      const moods: Record<string, 'up' | 'away'> = { x: 'up', y: 'up' };
      const publisherOf = (name: string) => {
        const publisher = new ScriptedPublisher({
          batchSizeMax: random.integer(1, 40),
          keyRuns: random.chance(0.5),
          batchesInFlightMax: random.integer(1, 3),
        });
        publisher.tookMs = random.integer(0, 3);
        publisher.outcomeOf = ({ eventId, key }) => {
          if (moods[name] === 'away') return { kind: 'unavailable', reason: 'away' };
          brokers[name]?.push({ id: eventId, key });
          return { kind: 'delivered' };
        };
        publisher.health = async () => {
          if (moods[name] === 'away') throw new Error('away');
        };
        return quick(publisher);
      };
      const start = (n: number) =>
        scenario.relay(`r${n}`, {
          ...fast,
          destinations: { x: publisherOf('x'), y: publisherOf('y') },
          route: ({ type }) => (type === 'both' ? names.map((to) => ({ to })) : { to: type }),
        });
      const relays = [await start(1), await start(2)];
      const sent: { id: string; key: string; to: string }[] = [];
      for (let round = 0; round < 40; round++) {
        const batch = Array.from({ length: random.integer(1, 30) }, () => ({
          aggregateId: `k${random.integer(0, 5)}`,
          type: random.pick(['x', 'y', 'both']),
        }));
        const emitted = await scenario.emit(batch);
        for (const [index, id] of emitted.entries()) {
          const { aggregateId, type } = batch[index] as (typeof batch)[0];
          sent.push({ id, key: aggregateId, to: type });
        }
        if (random.chance(0.4)) moods[random.pick(names)] = random.pick(['up', 'away']);
        if (random.chance(0.1)) {
          await relays.shift()?.stop();
          relays.push(await start(3 + round));
        }
      }
      moods.x = 'up';
      moods.y = 'up';
      await settled(scenario);
      for (const name of names) {
        const wanted = sent.filter(({ to }) => to === name || to === 'both');
        const got = brokers[name] ?? [];
        expect(new Set(got.map(({ id }) => id)).size, `${name} has each once`).toBe(wanted.length);
        for (let key = 0; key <= 5; key++) {
          // The first arrival of each: a relay that is stopped may have sent what it could not write down.
          const arrived = [...new Set(got.filter((each) => each.key === `k${key}`).map(({ id }) => id))];
          expect(arrived, `${name}, k${key}`).toEqual(
            wanted.filter((each) => each.key === `k${key}`).map(({ id }) => id),
          );
        }
      }
      expect(await attemptsUsed(scenario)).toEqual(none);
    }),
  );
});
