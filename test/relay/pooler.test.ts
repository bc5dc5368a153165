import { describe, expect, test } from 'vitest';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

describe('behind a transaction pooler', () => {
  test(
    'claims and results need no session: no prepared statement has a name, and nothing is set',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      await scenario.emit(
        Array.from({ length: 60 }, (_, n) => ({
          aggregateId: `a${n % 4}`,
          script: { failTimes: n % 10 === 3 ? 1 : 0 },
        })),
      );
      await scenario.emit([
        { aggregateId: 'bad', script: { reject: true } },
        { aggregateId: 'late', delayMs: 50 },
      ]);
      const relay = await scenario.relay('one', {
        connectionString: proxy.url(scenario.db.url),
        listen: false,
        leaseMs: 300,
        retry: { delaysMs: [10, 10] },
      });
      await scenario.drained();
      await until(
        async () =>
          (await scenario.db.query('select from postcommit.outbox_relays where heartbeat_at > started_at')).length,
        {
          what: 'it has renewed its lease',
        },
      );
      await relay.stop();
      expect(proxy.namedStatements).toEqual([]);
      expect(proxy.count({ text: /\S/ })).toBeGreaterThan(10);
      const session = /^\s*(set|reset|listen|prepare|declare|lock|discard|create temp)\b|pg_advisory_lock|set_config/i;
      expect(proxy.count({ text: session })).toBe(0);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [] });
    }),
  );
});

describe('on a session of its own, which it recognises by notifications that arrive', () => {
  /** One at a time, so that each is claimed alone, until a condition holds. */
  async function emitUntil(scenario: RelayScenario, condition: () => boolean, what: string): Promise<void> {
    await until(
      async () => {
        await scenario.emitLine('a', 1);
        await scenario.drained();
        return condition();
      },
      { what },
    );
  }

  test(
    'it keeps its claim prepared, and prepares nothing else',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      await scenario.relay('one', { connectionString, leaseMs: 300, pollIntervalMs: 100 });
      await emitUntil(scenario, () => proxy.namedStatements.length > 0, 'it prepares');
      const claims = () => proxy.count({ connection: 'claims', text: /\.claim_(one|next)\(/ });
      const before = claims();
      await emitUntil(scenario, () => claims() >= before + 5, 'it claims on');
      // Once for all of them.
      expect(proxy.namedStatements).toEqual([expect.stringMatching(/^postcommit_/)]);
      proxy.cut('claims'); // The next session knows nothing of it.
      await scenario.emitLine('b', 1);
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], duplicates: 0 });
    }),
  );

  test(
    'it prepares nothing while no notification arrives',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      proxy.muteNotifications(true);
      const connectionString = proxy.url(scenario.db.url);
      await scenario.relay('one', { connectionString, leaseMs: 300, pollIntervalMs: 100 });
      const claims = () => proxy.count({ connection: 'claims', text: /\.claim_(one|next)\(/ });
      await emitUntil(scenario, () => claims() >= 10, 'it has claimed often');
      expect(proxy.namedStatements).toEqual([]);
    }),
  );

  test(
    'it delivers on when its prepared claim is lost, and prepares it no more',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const connectionString = proxy.url(scenario.db.url);
      await scenario.relay('one', { connectionString, leaseMs: 300, pollIntervalMs: 100 });
      await emitUntil(scenario, () => proxy.namedStatements.length > 0, 'it prepares');
      // With every claim, the session of the claim forgets.
      await scenario.db.query(`
        create function forget() returns trigger language plpgsql as
          $$ begin if new.claimed_by is not null then execute 'deallocate all'; end if; return new; end $$;
        create trigger forget before update of claimed_by on postcommit.outbox_queue for each row execute function forget()`);
      const claims = () => proxy.count({ connection: 'claims', text: /\.claim_(one|next)\(/ });
      const before = claims();
      await emitUntil(scenario, () => claims() >= before + 10, 'it claims on');
      expect(proxy.namedStatements).toHaveLength(1);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], duplicates: 0 });
    }),
  );
});
