import { describe, expect, test } from 'vitest';
import { seededRandom } from '../support/random.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const names = ['default', 'reports', 'mail'];
const flaky = { retry: { delaysMs: [0, 5, 20, 50] }, leaseMs: 2_000, pollIntervalMs: 100 };

describe('G4 order per aggregate, across queues', () => {
  test(
    'random queues for the same aggregates, relays that work different ones, failures and a SIGKILL',
    withScenario(async (scenario) => {
      const random = seededRandom();
      const sets = [
        { default: 5, reports: 2 },
        { reports: 1, mail: 3 },
        { mail: 2, default: 4 },
      ];
      const victim = await scenario.child('victim', { ...flaky, queues: { default: 5, reports: 5, mail: 5 } });
      const relays = await Promise.all(sets.map((queues, n) => scenario.relay(`relay ${n}`, { ...flaky, queues })));
      const write = async () => {
        for (let n = 0; n < 20; n++) {
          await scenario.emit(
            Array.from({ length: random.integer(1, 5) }, () => ({
              aggregateId: `${random.integer(1, 6)}`,
              queue: random.pick(names),
              script: { failTimes: random.chance(0.1) ? random.integer(1, 2) : 0, workMs: random.chance(0.2) ? 3 : 0 },
              ...(random.chance(0.05) ? { delayMs: random.integer(1, 200) } : {}),
            })),
          );
        }
      };
      const writing = Promise.all(Array.from({ length: 10 }, write));
      await until(() => scenario.journal.ends().length > 50, { what: 'relays are at work' });
      victim.kill('SIGKILL');
      await victim.exited;
      for (let round = 0; round < 4; round++) {
        const relay = random.pick(relays);
        await relay.stop();
        await relay.start();
      }
      await writing;
      await scenario.drained(60_000);
      const findings = await scenario.findings({ killed: ['victim'] });
      expect(findings).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
    }),
    120_000,
  );
});
