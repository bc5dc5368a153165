import { describe, expect, test } from 'vitest';
import { statement } from '../support/postgres-proxy.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { deferred, until, within } from '../support/wait.ts';

async function expectNoAttemptSpent(scenario: RelayScenario): Promise<void> {
  expect(await scenario.db.query('select * from postcommit.outbox_failures')).toEqual([]);
  expect(await scenario.db.query('select * from postcommit.outbox_dead_letters')).toEqual([]);
  expect(await scenario.db.query('select * from postcommit.outbox_deliveries where attempts <> 1')).toEqual([]);
}

describe('G6 outage is not poison', () => {
  test(
    'the database is away while a handler works: its result is kept, and written when it is back',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const work = deferred();
      let calls = 0;
      const relay = await scenario.relay('one', {
        connectionString: proxy.url(scenario.db.url),
        retry: { delaysMs: [] },
        handlers: {
          scripted: {
            script: async () => {
              calls++;
              await work.promise;
            },
          },
        },
      });
      await scenario.emit([{ aggregateId: 'a' }, { aggregateId: 'b' }, { aggregateId: 'b' }]);
      await until(() => calls === 2, { what: 'both aggregates are at work' });
      proxy.refuse();
      proxy.cut();
      await until(() => !relay.stats().connected, { what: 'the connections are gone' });
      work.resolve();
      await until(() => calls === 3, { what: 'it goes on with what it holds while its lease lasts' });
      expect(relay.stats().delivered).toBe(0);
      proxy.accept();
      await scenario.drained();
      expect(calls).toBe(3);
      await expectNoAttemptSpent(scenario);
    }),
  );

  test(
    'the database is away for longer than the lease: what was not begun is given back',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      let running = 0;
      const relay = await scenario.relay('one', {
        connectionString: proxy.url(scenario.db.url),
        retry: { delaysMs: [] },
        leaseMs: 600,
        inFlightMax: 1,
        handlers: {
          scripted: {
            script: (_event, ctx) => {
              running++;
              if (running > 1) return undefined;
              return new Promise((_, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)));
            },
          },
        },
      });
      await scenario.emitLine('a', 20);
      await until(() => running === 1, { what: 'the handler runs' });
      proxy.refuse();
      proxy.cut();
      // The handler is aborted when the lease can no longer be trusted; nothing else begins then.
      await until(() => relay.stats().inFlight === 0 && relay.stats().waiting === 0, { what: 'all work is given up' });
      expect(running).toBe(1);
      proxy.accept();
      await scenario.drained();
      expect(running).toBe(21);
      await expectNoAttemptSpent(scenario);
    }),
  );

  test(
    'a payload that cannot be loaded now is loaded later',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = await scenario.relay('one', {
        connectionString: proxy.url(scenario.db.url),
        retry: { delaysMs: [] },
        handlers: { scripted: { script: (event) => void (event.payload.text.length satisfies number) } },
      });
      const load = proxy.holdAnswer({ text: statement.load });
      const text = Array.from({ length: 20_000 }, () => Math.random().toString(36)).join('');
      await scenario.emit([{ aggregateId: 'a', payload: { text } }]);
      await within(load.caught, { what: 'the payload was asked for' });
      load.cut();
      await scenario.drained();
      await until(() => relay.stats().delivered === 1, { what: 'the relay knows that it delivered' });
      expect(relay.stats()).toMatchObject({ delivered: 1, retried: 0, dead: 0 });
      await expectNoAttemptSpent(scenario);
    }),
  );
});
