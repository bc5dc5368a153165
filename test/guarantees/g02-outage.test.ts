import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { statement } from '../support/postgres-proxy.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until, within } from '../support/wait.ts';

const limits = { leaseMs: 2_000, batchSizeMax: 50, prefetchMax: 100, pollIntervalMs: 100 };
const retry = { delaysMs: [10, 10, 10] };

async function emitSome(scenario: RelayScenario, count = 60): Promise<void> {
  await scenario.emit(
    Array.from({ length: count }, (_, n) => ({
      aggregateId: `a${n % 3}`,
      script: { failTimes: n % 20 === 3 ? 1 : 0 },
    })),
  );
}

/** Nothing lost, nothing out of order, and no attempt spent on the outage. */
async function expectClean(scenario: RelayScenario, duplicatesMax: number): Promise<void> {
  const findings = await scenario.findings();
  expect(findings).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
  expect(findings.duplicates).toBeLessThanOrEqual(duplicatesMax);
  const [{ wrong }] = await scenario.db.query(
    `select count(*)::integer as wrong from postcommit.outbox_events e
       left join lateral (select count(*) as n from postcommit.outbox_failures f where f.seq = e.seq) f on true
      where f.n <> coalesce((e.payload ->> 'failTimes')::integer, 0)`,
  );
  expect(wrong).toBe(0);
}

describe('G2 nothing lost: a connection breaks and the relay lives', () => {
  test(
    'after its claim committed, before the answer arrives',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      await scenario.relay('one', { ...limits, retry, connectionString: proxy.url(scenario.db.url) });
      const claims = Array.from({ length: 3 }, (_, n) => proxy.holdAnswer({ text: statement.claim, after: n * 2 }));
      const emitted = emitSome(scenario);
      for (const claim of claims) {
        await within(claim.caught, { what: 'a claim was executed' });
        claim.cut();
      }
      await emitted;
      await emitSome(scenario);
      await scenario.drained();
      await expectClean(scenario, 0);
    }),
  );

  test(
    'while its claim waits for a lock, so that the claim takes effect long after the relay gave it up',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      await scenario.relay('one', { ...limits, retry, connectionString: proxy.url(scenario.db.url) });
      await emitSome(scenario);
      await scenario.drained();
      // With this one the relay also calls back what may have waited behind its retries: from then on it only claims.
      await scenario.emit([{ aggregateId: 'quiet' }]);
      await scenario.drained();
      const lock = await scenario.db.pool.connect();
      await lock.query('begin; lock table postcommit.outbox_queue');
      const waiting = async (count: number) => {
        const [{ n }] = await scenario.db.query(
          `select count(*)::integer as n from pg_stat_activity
            where datname = current_database() and query ~ '[.]claim_(one|next|many)[(]|with mine as' and wait_event_type = 'Lock'`,
        );
        return n >= count;
      };
      await until(() => waiting(1), { what: 'a claim waits' });
      proxy.cut('claims');
      await until(() => waiting(2), { what: 'another claim waits' });
      // These commit when the lock is gone, and so before any of the waiting claims looks.
      await lock.query(
        `select postcommit.emit('scripted', 'thing', 'a' || n % 3, 'null') from generate_series(1, 60) n`,
      );
      await lock.query('commit');
      lock.release();
      await scenario.drained();
      await expectClean(scenario, 0);
    }),
  );

  test(
    'after its results committed, before that is answered',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      await scenario.relay('one', { ...limits, retry, connectionString: proxy.url(scenario.db.url) });
      const traps = [
        proxy.holdAnswer({ text: statement.settle }),
        proxy.holdAnswer({ text: statement.fail }),
        proxy.holdAnswer({ text: statement.settle, after: 1 }),
        proxy.holdAnswer({ text: statement.fail, after: 1 }),
      ];
      await emitSome(scenario);
      for (const trap of traps) void trap.caught.then(() => trap.cut());
      await scenario.drained();
      await expectClean(scenario, 0);
    }),
  );

  test(
    'after a failure committed and the event was claimed again: the attempt counts once',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = await scenario.relay('one', {
        ...limits,
        retry: { delaysMs: [0, 0] },
        connectionString: proxy.url(scenario.db.url),
      });
      const fail = proxy.holdAnswer({ text: statement.fail });
      await scenario.emit([{ aggregateId: 'a', key: null, script: { failTimes: 1 } }]);
      await within(fail.caught, { what: 'the failure was written' });
      // A notification arrives: the event is ready, and the relay does not know that its write succeeded.
      const claimed = relay.stats().claimed;
      await scenario.emit([{ aggregateId: 'b' }]);
      await until(() => relay.stats().claimed >= claimed + 2, { what: 'both were claimed' });
      fail.cut();
      await scenario.drained();
      await expectClean(scenario, 0);
    }),
  );

  test(
    'again and again, all connections',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = await scenario.relay('one', { ...limits, retry, connectionString: proxy.url(scenario.db.url) });
      await emitSome(scenario, 2_000);
      for (let cuts = 0; cuts < 8; cuts++) {
        const done = relay.stats().delivered;
        await until(async () => relay.stats().delivered > done + 50 || (await scenario.queued()) === 0, {
          what: 'it went on',
        });
        proxy.cut(['results', 'claims', 'control', 'heartbeat', ''][cuts % 5]);
      }
      await scenario.drained();
      // What was delivered and could not be written down in time comes again only if the lease was lost. It was not.
      await expectClean(scenario, 0);
      expect(relay.stats()).toMatchObject({ fenced: 0, takenOver: 0 });
    }),
  );

  test(
    'for longer than a lease: with no other relay, it continues where it was',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const url = proxy.url(scenario.db.url);
      const relay = await scenario.relay('one', { ...limits, leaseMs: 600, retry, connectionString: url });
      await emitSome(scenario, 500);
      await until(() => scenario.journal.ends().length > 50, { what: 'it is at work' });
      proxy.refuse();
      proxy.cut();
      const startedAt = performance.now();
      await until(() => performance.now() - startedAt > 1_500, { what: 'two leases have passed' });
      proxy.accept();
      await emitSome(scenario);
      await scenario.drained();
      await expectClean(scenario, 100);
      // The last events may be delivered before every connection is open again.
      await until(() => relay.stats().connected, { what: 'all connections are open again' });
      expect(relay.stats()).toMatchObject({ state: 'running', deadLettered: 0 });
    }),
  );
});

describe('G2 nothing lost: PostgreSQL restarts', () => {
  let server: EmbeddedPostgres;
  beforeAll(async () => {
    server = await startTestPostgres();
  });
  afterAll(() => server.stop());

  test.each(['fast', 'immediate'] as const)('%s, while two relays drain', async (mode) => {
    const scenario = await RelayScenario.create({ serverUrl: server.connectionString });
    try {
      await emitSome(scenario, 2_000);
      const relays = await Promise.all(['one', 'two'].map((name) => scenario.relay(name, { ...limits, retry })));
      for (const share of [200, 1_000]) {
        await until(() => scenario.journal.ends().length >= share, { what: `${share} are delivered` });
        await server.restart(mode);
      }
      await scenario.drained();
      await expectClean(scenario, 2 * 2 * limits.prefetchMax);
      for (const relay of relays) expect(relay.stats()).toMatchObject({ state: 'running', deadLettered: 0 });
    } finally {
      await scenario.close();
    }
  });
});
