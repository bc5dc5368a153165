import { describe, expect, test, vi } from 'vitest';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const failing = [
  { aggregateId: 'a', script: { failTimes: 1 } },
  { aggregateId: 'b', script: { reject: true } },
];

describe('a relay without a logger', () => {
  test(
    'writes failures and dead letters to standard error, one JSON object per line, and nothing else',
    withScenario(async (scenario) => {
      const child = await scenario.child('quiet', { retry: { delaysMs: [0] } });
      const [failed, rejected] = await scenario.emit(failing);
      await scenario.drained();
      const lines = () => child.stderr().trimEnd().split('\n');
      await until(() => lines().length === 2, { what: 'both are reported' });
      child.kill('SIGTERM');
      await child.exited;
      const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT/);
      const logged = lines()
        .map((line) => JSON.parse(line))
        .sort((a, b) => a.seq - b.seq);
      // Where the handler threw.
      for (const { stack } of logged) expect(stack).toMatch(/^(Error: attempt 1 fails|Reject: .*)\n +at .*\n/);
      expect(logged).toMatchObject([
        { time, level: 'warn', message: 'delivery failed, will retry', event_id: failed, error: 'attempt 1 fails' },
        { time, level: 'error', message: 'event is a dead letter', event_id: rejected, reason: 'rejected' },
      ]);
    }),
  );

  test(
    'writes nothing with logger: false',
    withScenario(async (scenario) => {
      const written = vi.spyOn(console, 'error');
      try {
        const relay = scenario.idleRelay('silent', { logger: false, retry: { delaysMs: [0] } });
        await scenario.emit(failing);
        expect(await relay.runOnce()).toMatchObject({ deadLettered: 1 });
        expect(written).not.toHaveBeenCalled();
      } finally {
        written.mockRestore();
      }
    }),
  );
});
