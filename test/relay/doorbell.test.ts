import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { notifyRelays } from '../../src/outbox/emitting/notify.ts';
import { Doorbell } from '../../src/relay/wake/doorbell.ts';
import { statement } from '../support/postgres-proxy.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until, within } from '../support/wait.ts';

/** Emits as another process would: this one is notified only by NOTIFY. */
const emitElsewhere = `select postcommit.emit('scripted', 'thing', 'a', 'null')`;

describe('the doorbell', () => {
  test(
    'NOTIFY wakes a relay that polls once a minute',
    withScenario(async (scenario) => {
      const relay = await scenario.relay('one', { pollIntervalMs: 60_000 });
      expect(relay.stats().listening).toBe(true);
      await scenario.db.query(emitElsewhere);
      await notifyRelays(scenario.db.pool, 'postcommit');
      await until(() => scenario.journal.ends().length === 1, { what: 'it was delivered' });
    }),
  );

  test(
    'an emit in the same process wakes it without NOTIFY',
    withScenario(async (scenario) => {
      await scenario.relay('one', { pollIntervalMs: 60_000, listen: false });
      await scenario.emitLine('a', 1);
      await until(() => scenario.journal.ends().length === 1, { what: 'it was delivered' });
    }),
  );

  test(
    'listen: false: polling delivers, and no LISTEN is sent',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = await scenario.relay('one', { connectionString: proxy.url(scenario.db.url), listen: false });
      await scenario.db.query(emitElsewhere);
      await until(() => scenario.journal.ends().length === 1, { what: 'it was delivered' });
      expect(relay.stats().listening).toBe(false);
      expect(proxy.count({ text: statement.listen })).toBe(0);
    }),
  );

  test(
    'a LISTEN that is dead without an error is noticed, polling delivers, and it recovers',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const relay = await scenario.relay('one', { connectionString, leaseMs: 600, pollIntervalMs: 60_000 });
      const lost = nextEvent<{ silentMs: number }>(relay, 'notificationsLost');
      proxy.muteNotifications(true);
      expect((await lost).silentMs).toBeGreaterThan(0);
      expect(relay.stats().listening).toBe(false);
      await scenario.db.query(emitElsewhere);
      await until(() => scenario.journal.ends().length === 1, { timeoutMs: 3_000, what: 'polling delivered it' });
      proxy.muteNotifications(false);
      await until(() => relay.stats().listening, { what: 'notifications arrive again' });
    }),
  );

  test(
    'a silent heartbeat connection costs neither the lease nor events',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      const relay = await scenario.relay('one', { connectionString, leaseMs: 3_000, pollIntervalMs: 100 });
      const lost: unknown[] = [];
      relay.on('leaseLost', (facts) => lost.push(facts));
      const { token } = relay.stats();
      // Packets of this one connection vanish; a new connection would work.
      const renew = proxy.holdRequest({ connection: 'heartbeat', text: statement.renew });
      const told = await nextEvent<{ connection: string }>(relay, 'disconnected', 5_000);
      expect(told.connection).toBe('heartbeat');
      await until(() => relay.stats().connected && relay.stats().listening, { what: 'it connected anew' });
      renew.cut();
      await scenario.db.query(emitElsewhere);
      await until(() => scenario.journal.ends().length === 1, { what: 'it was delivered' });
      expect(relay.stats().token).toBe(token);
      expect(lost).toEqual([]);
    }),
  );

  test.each(['cancelled', 'probe'])(
    'a notification for a queue named %s wakes its lane, and means nothing else',
    (queue) =>
      withScenario(async ({ db }) => {
        let cancellations = 0;
        const doorbell = new Doorbell({
          schema: 'postcommit',
          listen: true,
          pollIntervalMs: 60_000,
          isBusy: () => false,
          onCancelled: () => void cancellations++,
          onNotificationsLost: () => {},
        });
        const bell = doorbell.bell(queue);
        const client = new pg.Client({ connectionString: db.url });
        await client.connect();
        try {
          await doorbell.start();
          await doorbell.attach(client);
          await bell.wait(60_000); // Each new connection notifies.
          const notified = bell.wait(60_000);
          await notifyRelays(db.pool, 'postcommit', queue);
          await within(notified, { timeoutMs: 5_000, what: 'the lane is notified' });
          expect(cancellations).toBe(0);
        } finally {
          await doorbell.stop();
          await client.end();
        }
      })(),
  );
});
