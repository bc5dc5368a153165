import { describe, expect, test } from 'vitest';
import { statement } from '../support/postgres-proxy.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

/** Long: an event that waits for the next poll is much too late. */
const pollIntervalMs = 600_000;
/** Well below that, and enough for a busy machine. */
const promptMs = 5_000;

interface Timing {
  aggregate: string;
  /** From when it was due to when its delivery was written down, by the database's clock. */
  late: number;
}

async function timings(scenario: RelayScenario): Promise<Timing[]> {
  return scenario.db.query<Timing>(
    `select e.aggregate_id as aggregate, (extract(epoch from d.delivered_at - e.available_at) * 1000)::double precision as late
       from postcommit.outbox_events e join postcommit.outbox_deliveries d on d.seqs @> e.seq
      where e.available_at is not null order by d.delivered_at`,
  );
}

async function expectOnTime(scenario: RelayScenario, aggregates: string[]): Promise<void> {
  const found = await timings(scenario);
  expect(found.map(({ aggregate }) => aggregate)).toEqual(aggregates);
  for (const { aggregate, late } of found) {
    expect(late, aggregate).toBeGreaterThanOrEqual(0);
    expect(late, aggregate).toBeLessThan(promptMs);
  }
}

describe('a delayed event', () => {
  test(
    'is delivered not before its time and promptly then, whichever was emitted first',
    withScenario(async (scenario) => {
      await scenario.relay('one', { pollIntervalMs });
      await scenario.emit([{ aggregateId: 'third', delayMs: 1_200 }]);
      await scenario.emit([{ aggregateId: 'first', delayMs: 300 }]);
      await scenario.emit([{ aggregateId: 'second', availableAt: new Date((await scenario.now()) + 700) }]);
      await scenario.emit([{ aggregateId: 'at once' }]);
      await until(() => scenario.journal.ends().length === 1, { what: 'the one without a delay is delivered' });
      await scenario.drained();
      await expectOnTime(scenario, ['first', 'second', 'third']);
    }),
  );

  test(
    'is delivered promptly beside events that are claimed one at a time, and so is what an ended relay has left',
    withScenario(async (scenario) => {
      await scenario.relay('one', { pollIntervalMs });
      await scenario.emit([{ aggregateId: 'delayed', delayMs: 100 }]);
      /** Emits one event at a time, and waits until it is delivered, until this many others are too. */
      const streamUntilOthers = async (others: number, what: string) => {
        const startedAt = performance.now();
        const othersDelivered = () => scenario.journal.ends().length - emitted;
        while (othersDelivered() < others) {
          if (performance.now() - startedAt > promptMs) throw new Error(`${what}: not within ${promptMs} ms`);
          await scenario.emit([{ aggregateId: `steady ${++emitted}` }]);
          await until(() => othersDelivered() >= 0, { what: 'the event of the stream is delivered' });
        }
      };
      let emitted = 0;
      await streamUntilOthers(1, 'the delayed event');
      await until(async () => (await timings(scenario)).length === 1, { what: 'its delivery is written down' });
      await expectOnTime(scenario, ['delayed']);
      const [gone] = await scenario.db.query<{ token: string }>(
        `insert into postcommit.outbox_relays (name, host, pid, lease_until, ended_at, ended_as)
         values ('gone', 'h', 1, now(), now(), 'lost') returning token`,
      );
      await scenario.db.query(
        `with e as (insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
           select aggregate_type, 'left', event_type, payload from postcommit.outbox_events order by seq desc limit 1 returning seq)
         select from e`,
      );
      await scenario.db.query('update postcommit.outbox_queue set claimed_by = $1 where claimed_by is null', [
        gone?.token,
      ]);
      await streamUntilOthers(2, 'the event of the ended relay');
    }),
  );

  test(
    'that was there before the relay, or was due before, likewise',
    withScenario(async (scenario) => {
      await scenario.emit([
        { aggregateId: 'past', availableAt: new Date((await scenario.now()) - 1_000) },
        { aggregateId: 'future', delayMs: 1_000 },
        { aggregateId: 'zero', delayMs: 0 },
      ]);
      await scenario.relay('one', { pollIntervalMs });
      await scenario.drained();
      const found = await timings(scenario);
      expect(found.map(({ aggregate }) => aggregate).sort()).toEqual(['future', 'past', 'zero']);
      for (const { late } of found) expect(late).toBeGreaterThanOrEqual(0);
      expect(found.at(-1)).toMatchObject({ aggregate: 'future' });
      expect(found.at(-1)?.late).toBeLessThan(promptMs);
    }),
  );

  test(
    'is delivered on time by a relay that another one leaves it to',
    withScenario(async (scenario) => {
      const first = await scenario.relay('first', { pollIntervalMs });
      await scenario.relay('second', { pollIntervalMs });
      await scenario.emit([{ aggregateId: 'a', delayMs: 800 }]);
      await first.stop();
      await scenario.drained();
      await expectOnTime(scenario, ['a']);
    }),
  );

  test(
    'holds back the later events of its aggregate, and of no other',
    withScenario(async (scenario) => {
      await scenario.relay('one', { pollIntervalMs });
      await scenario.emit([{ aggregateId: 'a', delayMs: 800 }, { aggregateId: 'a' }, { aggregateId: 'b' }]);
      await until(() => scenario.journal.ends().length > 0, { what: 'b is delivered' });
      await scenario.drained();
      expect(scenario.journal.ends()).toEqual(['3', '1', '2']);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], duplicates: 0 });
      await expectOnTime(scenario, ['a']);
    }),
  );

  test(
    'is left alone by runOnce(), which does not wait for it',
    withScenario(async (scenario) => {
      await scenario.emit([{ aggregateId: 'a', delayMs: 3_600_000 }, { aggregateId: 'b' }]);
      expect(await scenario.idleRelay('one').runOnce()).toEqual({
        delivered: 1,
        failed: 0,
        deadLettered: 0,
        complete: true,
      });
      expect(await scenario.queued()).toBe(1);
    }),
  );

  test(
    'far in the future is kept, and not asked for all the time',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = await scenario.relay('one', { pollIntervalMs, connectionString: proxy.url(scenario.db.url) });
      await scenario.emit([
        { aggregateId: 'a', availableAt: new Date((await scenario.now()) + 365 * 24 * 3_600_000) },
        { aggregateId: 'b', delayMs: 40 * 24 * 3_600_000 }, // More milliseconds than a timer of Node's can hold.
        { aggregateId: 'c' },
      ]);
      await until(() => scenario.journal.ends().length === 1, { what: 'c is delivered' });
      await scenario.emit([{ aggregateId: 'd', delayMs: 500 }]);
      await until(() => scenario.journal.ends().length === 2, { what: 'd is delivered' });
      expect(scenario.journal.ends()).toEqual(['3', '4']);
      expect(relay.stats()).toMatchObject({ claimed: 2, waiting: 0 });
      expect(proxy.count({ text: statement.claim })).toBeLessThan(15);
    }),
  );
});

test(
  'a retry is due by the database’s clock, and tried promptly then',
  withScenario(async (scenario) => {
    await scenario.relay('one', { pollIntervalMs, retry: { delaysMs: [400, 900] } });
    await scenario.emit([{ aggregateId: 'a', script: { failTimes: 2 } }]);
    await scenario.drained();
    const attempts = await scenario.db.query<{ ms: number }>(
      `select (extract(epoch from at - lag(at) over (order by at)) * 1000)::double precision as ms
         from (select failed_at as at from postcommit.outbox_failures
               union all select delivered_at from postcommit.outbox_deliveries) attempts
        order by at`,
    );
    const [, first = 0, second = 0] = attempts.map(({ ms }) => ms);
    expect(first).toBeGreaterThanOrEqual(400);
    expect(first).toBeLessThan(400 + promptMs);
    expect(second).toBeGreaterThanOrEqual(900);
    expect(second).toBeLessThan(900 + promptMs);
  }),
);
