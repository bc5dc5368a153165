import { describe, expect, test } from 'vitest';
import { createRelay, type PublishOutcome } from '../../src/index.ts';
import { webhook } from '../../src/publishers/webhook.ts';
import { Receiver } from '../publishers/webhook-receiver.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const dayMs = 86_400_000;
const hourMs = 3_600_000;

describe('Retry-After of a receiver', () => {
  test.each([
    ['an hour by default', {}, hourMs],
    ['less where the destination allows less', { retryAfterMaxMs: 600_000 }, 600_000],
    ['all of it where the destination allows more', { retryAfterMaxMs: 30 * dayMs }, dayMs],
  ])('of a day holds the event for %s', (_, settings, heldMs) =>
    withScenario(async (scenario) => {
      const receiver = await Receiver.forTest();
      receiver.answer = (_request, response) => response.writeHead(429, { 'retry-after': '86400' }).end();
      const hook = { publisher: webhook({ url: receiver.url(), secret: null }), ...settings };
      const relay = scenario.idleRelay('r', { handlers: {}, destinations: { hook }, retry: { delaysMs: [1] } });
      await scenario.emit([{ aggregateId: 'a' }]);
      await relay.runOnce();
      expect(relay.stats().failed).toBe(1);
      const due = 'select extract(epoch from available_at - now()) * 1000 as ms from postcommit.outbox_queue';
      const [row] = await scenario.db.query<{ ms: string }>(due);
      expect(Number(row?.ms)).toBeLessThanOrEqual(heldMs);
      expect(Number(row?.ms)).toBeGreaterThan(heldMs - 60_000);
    })(),
  );

  test(
    'of a day postpones the probe of an outage by an hour',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.outcomeOf = (): PublishOutcome => ({ kind: 'unavailable', reason: 'maintenance', retryAfterMs: dayMs });
      await scenario.relay('r', { handlers: {}, destinations: { events } });
      await scenario.emit([{ aggregateId: 'a' }]);
      const probe = `select extract(epoch from probe_at - now()) * 1000 as ms from postcommit.outbox_destinations
                      where state = 'open'`;
      const row = await until(async () => (await scenario.db.query<{ ms: string }>(probe))[0], {
        what: 'the circuit is open',
      });
      expect(Number(row.ms)).toBeLessThanOrEqual(hourMs);
      expect(Number(row.ms)).toBeGreaterThan(hourMs - 60_000);
    }),
  );

  test.each([0, 1.5, 30 * dayMs + 1, '5'])('retryAfterMaxMs cannot be %j', (retryAfterMaxMs) => {
    const events = { publisher: new ScriptedPublisher(), retryAfterMaxMs: retryAfterMaxMs as number };
    expect(() => createRelay({ connectionString: 'postgres://localhost/x', destinations: { events } })).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_BAD_OPTION',
        message: expect.stringContaining("destinations['events'].retryAfterMaxMs must be a whole number from 1 to"),
      }),
    );
  });
});
