import { describe, expect, test } from 'vitest';
import type { RelayScenario, ScenarioRelayOptions } from '../support/relay-scenario.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

/** Emits for other aggregates, and answers how many deliveries `slowKey` made until all of those were delivered. */
async function deliveriesMeanwhile(scenario: RelayScenario, slowKey: string, count = 50): Promise<number> {
  const progress = () =>
    scenario.journal.read().filter(({ key, phase }) => key === slowKey && phase !== 'begin').length;
  const before = progress();
  await scenario.emit(Array.from({ length: count }, (_, n) => ({ aggregateId: `other-${n % 10}` })));
  await until(
    () =>
      scenario.journal.read().filter(({ key, phase }) => /other/.test(key ?? '') && phase === 'end').length === count,
    {
      what: 'the other aggregates were delivered',
    },
  );
  return progress() - before;
}

const sizes: [string, ScenarioRelayOptions][] = [
  ['default limits', {}],
  ['prefetchMax 40', { prefetchMax: 40, batchSizeMax: 20 }],
  ['prefetchMax 8', { prefetchMax: 8, batchSizeMax: 8 }],
];

describe('G4 other aggregates never wait', () => {
  test.each(sizes)('for one in backoff with 2,000 followers (%s)', (_name, limits) =>
    withScenario(async (scenario) => {
      await scenario.emitLine('failing', 1, { failTimes: 1_000 });
      await scenario.emitLine('failing', 2_000);
      await scenario.relay('one', { ...limits, retry: { delaysMs: Array(1_000).fill(300) } });
      await until(() => scenario.journal.read().some(({ phase }) => phase === 'fail'), { what: 'it failed' });
      expect(await deliveriesMeanwhile(scenario, 'thing:failing')).toBeLessThanOrEqual(5);
      expect(await deliveriesMeanwhile(scenario, 'thing:failing')).toBeLessThanOrEqual(5);
    })(),
  );

  test.each(sizes)('for one with a slow handler and a backlog of 3,000 (%s)', (_name, limits) =>
    withScenario(async (scenario) => {
      await scenario.emitLine('slow', 3_000, { workMs: 1_000 });
      await scenario.relay('one', limits);
      await until(() => scenario.journal.read().length > 0, { what: 'the slow one began' });
      expect(await deliveriesMeanwhile(scenario, 'thing:slow')).toBeLessThanOrEqual(2);
      expect(await deliveriesMeanwhile(scenario, 'thing:slow')).toBeLessThanOrEqual(2);
    })(),
  );

  test(
    'for three slow ones with a small prefetchMax',
    withScenario(async (scenario) => {
      for (const name of ['slow-1', 'slow-2', 'slow-3']) await scenario.emitLine(name, 200, { workMs: 1_000 });
      await scenario.relay('one', { prefetchMax: 20, batchSizeMax: 20 });
      await until(() => scenario.journal.read().length > 0, { what: 'a slow one began' });
      expect(await deliveriesMeanwhile(scenario, 'thing:slow-1')).toBeLessThanOrEqual(2);
    }),
  );

  test.each(sizes)('for one that a dead letter holds (%s)', (_name, limits) =>
    withScenario(async (scenario) => {
      await scenario.emitLine('held', 1, { reject: true });
      await scenario.emitLine('held', 2_000);
      await scenario.relay('one', { ...limits, poison: 'block' });
      await until(() => scenario.journal.read().some(({ phase }) => phase === 'fail'), { what: 'it was rejected' });
      expect(await deliveriesMeanwhile(scenario, 'thing:held')).toBe(0);
      expect(await deliveriesMeanwhile(scenario, 'thing:held')).toBe(0);
    })(),
  );

  test(
    'for a busy one with a backlog of 8,000, which loses nothing by that',
    withScenario(async (scenario) => {
      await scenario.emitLine('busy', 8_000, { workMs: 1 });
      await scenario.relay('one');
      const delivered = () => scenario.journal.ends().length;
      await until(() => delivered() > 300, { what: 'the busy one is at work' });
      expect(await deliveriesMeanwhile(scenario, 'thing:busy')).toBeLessThan(1_000);
      // It is left alone while it has enough in hand, and must not run dry meanwhile: a pause would be a poll's length.
      const startedAt = performance.now();
      const before = delivered();
      await until(() => delivered() > before + 1_000, { what: 'the busy one went on' });
      const perEventMs = (performance.now() - startedAt) / 1_000;
      expect(perEventMs).toBeLessThan(8);
    }),
  );

  test(
    'and those whose events fail now and then go on quickly themselves',
    withScenario(async (scenario) => {
      await scenario.emit(
        Array.from({ length: 900 }, (_, n) => ({
          aggregateId: `a${n % 3}`,
          script: { failTimes: n % 5 === 3 ? 1 : 0 },
        })),
      );
      // A relay that is busy giving back what it claims would deliver some forty a second.
      await scenario.relay('one', { batchSizeMax: 50, prefetchMax: 100, inFlightMax: 50, retry: { delaysMs: [10] } });
      await scenario.drained(12_000);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
    }),
  );

  test(
    'and one that was slow for a moment is soon fast again',
    withScenario(async (scenario) => {
      await scenario.emitLine('hot', 1, { workMs: 400 });
      await scenario.emitLine('hot', 4_000);
      await scenario.relay('one');
      await until(() => scenario.journal.ends().length === 4_001, {
        timeoutMs: 8_000,
        what: 'its backlog is delivered',
      });
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
    }),
  );

  test(
    'and the backlog of a slow one is there for the next relay at once',
    withScenario(async (scenario) => {
      await scenario.emitLine('slow', 40, { workMs: 300 });
      await scenario.emitLine('slow', 8_000);
      const first = await scenario.relay('first');
      await until(() => scenario.journal.ends().length >= 2, { what: 'the slow one is at work' });
      await first.stop();
      await scenario.relay('second', {
        handlers: {
          scripted: {
            script: (event) => {
              scenario.journal.write({
                phase: 'end',
                relay: 'second',
                seq: event.seq,
                id: event.id,
                key: event.key,
                handler: '',
                attempt: 1,
                idempotencyKey: '',
              });
            },
          },
        },
      });
      await until(async () => (await scenario.queued()) === 0, {
        timeoutMs: 5_000,
        what: 'the second relay has it all',
      });
    }),
  );
});
