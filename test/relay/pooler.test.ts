import { describe, expect, test } from 'vitest';
import { withScenario } from '../support/relay-scenario.ts';
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
      const session =
        /^\s*(set|reset|listen|prepare|declare|begin|lock|discard|create temp)\b|pg_advisory_lock|set_config/i;
      expect(proxy.count({ text: session })).toBe(0);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [] });
    }),
  );
});
