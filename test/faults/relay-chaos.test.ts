import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { Relay } from '../../src/index.ts';
import type { PostgresProxy } from '../support/postgres-proxy.ts';
import { type SeededRandom, seededRandom } from '../support/random.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';

const leaseMs = 1_000;
const chaosMs = Number(process.env.CHAOS_MS ?? 8_000);
const connections = ['claims', 'results', 'control', 'heartbeat', 'postcommit'];

interface Victim {
  relay: Relay;
  proxy: PostgresProxy;
}

async function writeUntil(scenario: RelayScenario, random: SeededRandom, over: () => boolean): Promise<void> {
  while (!over()) {
    await scenario.emit(
      Array.from({ length: random.integer(1, 4) }, () => ({
        aggregateId: `a${random.integer(1, 12)}`,
        script: { failTimes: random.chance(0.08) ? random.integer(1, 2) : 0, workMs: random.integer(0, 10) },
        ...(random.chance(0.05) ? { delayMs: random.integer(1, 400) } : {}),
        ...(random.chance(0.05) ? { key: null } : {}),
      })),
    );
    await sleep(random.integer(5, 60));
  }
}

/** One thing after the other goes wrong with one relay. */
async function torment({ relay, proxy }: Victim, random: SeededRandom, over: () => boolean): Promise<void> {
  while (!over()) {
    await sleep(random.integer(50, 400));
    const connection = random.pick(connections);
    const fault = random.pick(['cut', 'cut', 'stall', 'refuse', 'restart'] as const);
    if (fault === 'cut') {
      proxy.cut(connection);
    } else if (fault === 'stall') {
      proxy.stall(connection);
      await sleep(random.integer(100, leaseMs * 2));
      proxy.resume(connection);
    } else if (fault === 'refuse') {
      proxy.refuse();
      proxy.cut();
      await sleep(random.integer(100, leaseMs * 2));
      proxy.accept();
    } else {
      await relay.stop();
      // It may come too early, while its database cannot be reached.
      while (relay.stats().state === 'idle') await relay.start().catch(() => sleep(50));
    }
  }
}

describe('G2, G4: three relays whose network fails in every way', () => {
  test(
    'deliver everything, in order, one at a time per aggregate',
    withScenario(async (scenario) => {
      const random = seededRandom();
      const victims: Victim[] = [];
      for (const name of ['one', 'two', 'three']) {
        const proxy = await scenario.proxy();
        const relay = await scenario.relay(name, {
          connectionString: proxy.url(scenario.db.url),
          leaseMs,
          pollIntervalMs: 100,
          batchSizeMax: random.integer(2, 50),
          prefetchMax: random.integer(50, 100),
          inFlightMax: random.integer(1, 10),
          stopTimeoutMs: 200,
          retry: { delaysMs: Array(20).fill(random.integer(0, 50)) },
        });
        victims.push({ relay, proxy });
      }
      const startedAt = performance.now();
      const over = () => performance.now() - startedAt > chaosMs;
      await Promise.all([
        ...victims.map((victim) => torment(victim, random, over)),
        ...Array.from({ length: 4 }, () => writeUntil(scenario, random, over)),
      ]);
      await scenario.drained(40_000);
      const findings = await scenario.findings();
      expect(findings).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
      expect(await scenario.db.query('select * from postcommit.outbox_dead_letters')).toEqual([]);
      // What is not the events' fault cost no attempt.
      const [{ wrong }] = await scenario.db.query(
        `select count(*)::integer as wrong from postcommit.outbox_events e
           left join lateral (select count(*) as n from postcommit.outbox_failures f where f.seq = e.seq) f on true
          where f.n > (e.payload ->> 'failTimes')::integer`,
      );
      expect(wrong).toBe(0);
    }),
    120_000,
  );
});
