import { describe, expect, test } from 'vitest';
import { doorbellChannel } from '../../src/database/identifier.ts';
import { statement } from '../support/postgres-proxy.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until } from '../support/wait.ts';

/** So long that no test waits for it. */
const pollIntervalMs = 600_000;
/** Three heartbeats a second, so that a probe is soon sent and missed. */
const leaseMs = 1_000;
const channel = doorbellChannel('postcommit');

/** Emits as another language would, without a notification. */
async function insertSilently(scenario: RelayScenario, aggregateId: string): Promise<void> {
  await scenario.db.query(
    `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
     values ('thing', $1, 'scripted', 'null')`,
    [aggregateId],
  );
}

async function notify(scenario: RelayScenario, message = ''): Promise<void> {
  await scenario.db.query('select pg_notify($1, $2)', [channel, message]);
}

const delivered = (scenario: RelayScenario, count: number) =>
  until(() => scenario.journal.ends().length === count, { what: `${count} are delivered` });

describe('a relay whose LISTEN works', () => {
  test(
    'claims only when it is notified',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      await scenario.relay('one', { pollIntervalMs, leaseMs, connectionString });
      const claims = () => proxy.count({ text: statement.claim });
      const beats = () => proxy.count({ text: statement.renew });
      await until(() => claims() > 0 && beats() > 0, { what: 'it has begun' });
      const before = { claims: claims(), beats: beats() };
      // Probes, of this relay with its heartbeats and of others, cause no claim.
      for (let n = 0; n < 20; n++) await notify(scenario, `probe:${n}`);
      await until(() => beats() >= before.beats + 3, { what: 'some time has passed' });
      expect(claims() - before.claims).toBeLessThanOrEqual(1);
      await insertSilently(scenario, 'a');
      await notify(scenario);
      await delivered(scenario, 1);
    }),
  );

  test(
    'listens again at once when its connection breaks, and finds the events of the meantime',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const lost: object[] = [];
      // The next heartbeat is ten seconds away: it is not what brings the connection back.
      const relay = await scenario.relay('one', { pollIntervalMs, connectionString });
      relay.on('notificationsLost', (facts) => lost.push(facts));
      await until(() => proxy.count({ text: statement.claim }) >= 2, { what: 'it has looked, and waits for a ring' });
      proxy.refuse();
      proxy.cut('claims');
      await until(() => !relay.stats().listening, { what: 'the loss is noticed' });
      await insertSilently(scenario, 'a');
      await notify(scenario); // No relay receives it.
      proxy.accept();
      await until(() => relay.stats().listening, { timeoutMs: 8_000, what: 'it listens again' });
      expect(relay.stats().connected).toBe(true);
      await delivered(scenario, 1);
      await insertSilently(scenario, 'b');
      await notify(scenario);
      await delivered(scenario, 2);
      expect(lost).toEqual([]);
    }),
  );

  test(
    'still receives notifications when another of its connections breaks',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const relay = await scenario.relay('one', { pollIntervalMs, connectionString });
      await until(() => proxy.count({ text: statement.claim }) >= 2, { what: 'it waits for a notification' });
      proxy.refuse();
      proxy.cut('control');
      await until(() => !relay.stats().connected, { what: 'the loss is noticed' });
      expect(relay.stats().listening).toBe(true);
      await insertSilently(scenario, 'a');
      await notify(scenario);
      await delivered(scenario, 1);
      proxy.accept();
      await until(() => relay.stats().connected, { timeoutMs: 8_000, what: 'it is connected again' });
    }),
  );
});

describe('a LISTEN that is dead without an error', () => {
  test(
    'is reported once each time, also in the log, and the relay polls instead of waiting for notifications',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const warnings: string[] = [];
      const ignore = () => {};
      const warn = (_fields: object, text: string) => void warnings.push(text);
      const logger = { debug: ignore, info: ignore, warn, error: ignore };
      const relay = scenario.idleRelay('one', { pollIntervalMs, leaseMs, connectionString, logger });
      const lost: { silentMs: number }[] = [];
      relay.on('notificationsLost', (facts) => lost.push(facts));
      await relay.start();
      const probes = () => proxy.count({ text: /pg_notify/, connection: 'control' });
      for (const episode of [1, 2]) {
        proxy.muteNotifications(true);
        // No notification arrives, and the next poll is far off: only the missed probe makes the relay find this event.
        await insertSilently(scenario, `not notified ${episode}`);
        await delivered(scenario, 2 * episode - 1);
        await until(() => !relay.stats().listening, { what: 'the loss is noticed' });
        const before = probes();
        await until(() => probes() >= before + 3, { what: 'it probes on' });
        expect(lost).toHaveLength(episode);
        await insertSilently(scenario, `polled ${episode}`);
        await delivered(scenario, 2 * episode);
        proxy.muteNotifications(false);
        await until(() => relay.stats().listening, { what: 'notifications arrive again' });
      }
      for (const { silentMs } of lost) expect(silentMs).toBeGreaterThan(0);
      expect(warnings.filter((text) => /LISTEN receives no/.test(text))).toHaveLength(2);
    }),
  );

  test(
    'because its connection stalls: reported, and the events of the meantime are found as soon as it resumes',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const relay = await scenario.relay('one', { pollIntervalMs, leaseMs, connectionString });
      await until(() => proxy.count({ text: statement.claim }) >= 2, { what: 'it waits for a notification' });
      const beats = proxy.count({ text: statement.renew });
      await until(() => proxy.count({ text: statement.renew }) > beats, { what: 'it was answered long ago' });
      const lost = nextEvent<{ silentMs: number }>(relay, 'notificationsLost');
      proxy.stall('claims');
      await insertSilently(scenario, 'a');
      await notify(scenario);
      expect((await lost).silentMs).toBeGreaterThan(0);
      expect(relay.stats().listening).toBe(false);
      proxy.resume('claims');
      await delivered(scenario, 1);
      await until(() => relay.stats().listening, { what: 'notifications arrive again' });
      expect(relay.stats()).toMatchObject({ fenced: 0, takenOver: 0 });
    }),
  );

  test(
    'because its connection died silently: the relay replaces it and listens again',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const relay = await scenario.relay('one', { pollIntervalMs: 300, leaseMs: 9_000, connectionString });
      const lost = nextEvent<{ connection: string }>(relay, 'disconnected', 25_000);
      proxy.stall('claims');
      await insertSilently(scenario, 'a');
      await notify(scenario);
      expect((await lost).connection).toBe('claims');
      expect(relay.stats().listening).toBe(false);
      proxy.resume('claims');
      await delivered(scenario, 1);
      await until(() => relay.stats().listening, { timeoutMs: 20_000, what: 'it listens again' });
      await insertSilently(scenario, 'b');
      await notify(scenario);
      await delivered(scenario, 2);
      expect(relay.stats()).toMatchObject({ fenced: 0, takenOver: 0 });
    }),
  );
});

describe('a claim that waits for a lock', () => {
  test(
    'is not a loss of notifications: they arrive when it ends',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = await scenario.relay('one', { leaseMs, connectionString: proxy.url(scenario.db.url) });
      const lost: object[] = [];
      relay.on('notificationsLost', (facts) => lost.push(facts));
      const client = await scenario.db.pool.connect();
      await client.query('begin; lock table postcommit.outbox_queue in exclusive mode');
      await notify(scenario);
      await until(
        async () =>
          (
            await scenario.db.query(
              `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query ~ 'claim'`,
            )
          ).length > 0,
        { what: 'a claim waits' },
      );
      const beats = () => proxy.count({ text: statement.renew });
      const before = beats();
      await until(() => beats() >= before + 4, { what: 'several probes were sent' });
      expect(relay.stats().listening).toBe(true);
      await client.query('rollback');
      client.release();
      await insertSilently(scenario, 'a');
      await notify(scenario);
      await delivered(scenario, 1);
      expect(lost).toEqual([]);
    }),
  );
});

describe('listen: false', () => {
  test(
    'polls in short pauses that grow, and reports no loss',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const lost: object[] = [];
      const relay = scenario.idleRelay('one', { pollIntervalMs, leaseMs, listen: false, connectionString });
      relay.on('notificationsLost', (facts) => lost.push(facts));
      await relay.start();
      const claims = () => proxy.count({ text: statement.claim });
      const beats = () => proxy.count({ text: statement.renew });
      await until(() => beats() > 1, { what: 'it has been idle for a while' });
      const [startedAt, before] = [performance.now(), claims()];
      await until(() => claims() >= before + 4, { what: 'it polls' });
      expect(performance.now() - startedAt).toBeGreaterThan(500);
      for (const id of ['a', 'b', 'c']) {
        await insertSilently(scenario, id);
        await scenario.drained();
      }
      await until(() => beats() >= 5, { what: 'several probes would have been missed' });
      expect(lost).toEqual([]);
      expect(proxy.count({ text: /listen|pg_notify/i })).toBe(0);
    }),
  );
});
