import { expect, test } from 'vitest';
import { createOutbox, fromPg, Reject } from '../../src/index.ts';
import type { Logger } from '../../src/telemetry/logging.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

interface Line {
  level: string;
  message: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test knows the fields of the lines it asks for.
  fields: any;
}

function collectingLogger() {
  const lines: Line[] = [];
  const at = (level: string) => (fields: object, message: string) => void lines.push({ level, message, fields });
  const logger: Logger = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
  const of = (message: string) => lines.filter((line) => line.message.startsWith(message));
  return { logger, lines, of };
}

test(
  'each line about an event names it, its type, its aggregate and the attempt, and none has the payload',
  withScenario(async (scenario) => {
    const { logger, lines, of } = collectingLogger();
    const begun: string[] = [];
    const relay = await scenario.relay('a', {
      logger,
      retry: { delaysMs: [0] },
      handlers: {
        flaky: { work: () => Promise.reject(new Error('always')) },
        slow: {
          work: (event, { signal }) => {
            begun.push(event.id);
            return new Promise((resolve) => signal.addEventListener('abort', resolve));
          },
        },
      },
    });
    const payload = { card: '4111-1111' };
    const [, slow = ''] = await scenario.emit([
      { aggregateId: 'a', type: 'flaky', payload },
      { aggregateId: 'b', type: 'slow', payload },
    ]);
    await until(() => begun.includes(slow), { what: 'the slow one runs' });
    await createOutbox({ db: fromPg(scenario.db.pool) }).admin.cancel({ ids: [slow] });
    await until(() => relay.stats().cancelled === 1 && relay.stats().deadLettered === 1, { what: 'both ended' });
    const about = [of('delivery failed'), of('event is a dead letter'), of('event was cancelled')];
    expect(about.map((each) => each.length)).toEqual([1, 1, 1]);
    for (const { fields } of about.flat()) {
      expect(fields).toMatchObject({
        event_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        event_type: expect.stringMatching(/flaky|slow/),
        aggregate_id: expect.stringMatching(/^[ab]$/),
        attempt: expect.any(Number),
      });
    }
    expect(of('event is a dead letter')[0]?.fields).toMatchObject({ attempt: 2, reason: 'exhausted', suppressed: 0 });
    expect(JSON.stringify(lines)).not.toContain('4111');
  }),
);

test(
  'a thousand dead letters are a few lines, which say how many were left out',
  withScenario(async (scenario) => {
    const { logger, of } = collectingLogger();
    const begunAt = performance.now();
    const relay = await scenario.relay('a', {
      logger,
      handlers: {
        bad: {
          work: () => {
            throw new Reject('no');
          },
        },
      },
    });
    await scenario.emit(Array.from({ length: 1_000 }, (_, n) => ({ aggregateId: String(n), type: 'bad' })));
    await until(() => relay.stats().deadLettered === 1_000, { what: 'all are dead letters' });
    const lines = of('event is a dead letter');
    const seconds = (performance.now() - begunAt) / 1_000;
    expect(lines.length).toBeGreaterThan(0);
    expect(lines.length).toBeLessThanOrEqual(Math.ceil(seconds) + 1);
    expect(lines.every(({ level, fields }) => level === 'error' && Number.isInteger(fields.suppressed))).toBe(true);
  }),
);
