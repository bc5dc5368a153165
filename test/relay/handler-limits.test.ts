import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { Handler } from '../../src/index.ts';
import { HandlerLimiter } from '../../src/relay/deliver/handler-limiter.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { scriptedHandler } from '../support/scripted-handler.ts';
import { deferred, until } from '../support/wait.ts';

/** Counts calls at once, and holds them until it is opened. */
function gatedHandler() {
  const gate = deferred();
  const seen = { begun: 0, underWay: 0, most: 0 };
  const handle: Handler = async () => {
    seen.begun++;
    seen.underWay++;
    seen.most = Math.max(seen.most, seen.underWay);
    await gate.promise;
    await turn();
    seen.underWay--;
  };
  return { seen, handle, open: () => gate.resolve() };
}

const things = (type: string, count: number) =>
  Array.from({ length: count }, (_, n) => ({ type, aggregateId: `${type} ${n}` }));

describe('inFlightMax of a handler', () => {
  test(
    'limits its calls and takes no slots from other handlers',
    withScenario(async (scenario) => {
      const report = gatedHandler();
      const handlers = { report: { generate: { handle: report.handle, inFlightMax: 2 } }, mail: { send: () => {} } };
      const relay = await scenario.relay('one', { inFlightMax: 4, handlers });
      await scenario.emit([...things('report', 12), ...things('mail', 30)]);
      await until(() => relay.stats().delivered === 30, { what: 'all mails are sent' });
      expect(report.seen).toEqual({ begun: 2, underWay: 2, most: 2 });
      report.open();
      await scenario.drained();
      expect(report.seen).toEqual({ begun: 12, underWay: 0, most: 2 });
      expect(relay.stats()).toMatchObject({ failed: 0, deadLettered: 0, inFlight: 0, waiting: 0 });
    }),
  );

  test(
    'a backlog of its events does not keep others out of the buffer',
    withScenario(async (scenario) => {
      const report = gatedHandler();
      const handlers = { report: { generate: { handle: report.handle, inFlightMax: 1 } }, mail: { send: () => {} } };
      await scenario.emit([...things('report', 100), ...things('mail', 50)]);
      const relay = await scenario.relay('one', { inFlightMax: 4, batchSizeMax: 10, prefetchMax: 20, handlers });
      await until(() => relay.stats().delivered === 50, { what: 'all mails are sent' });
      expect(report.seen).toEqual({ begun: 1, underWay: 1, most: 1 });
      expect(relay.stats().waiting).toBeLessThanOrEqual(20);
      report.open();
      await scenario.drained(60_000);
      expect(report.seen).toEqual({ begun: 100, underWay: 0, most: 1 });
      const [row] = await scenario.db.query('select count(*)::integer as failures from postcommit.outbox_failures');
      expect(row).toEqual({ failures: 0 });
    }),
  );

  test(
    'other handlers of the same event are called at once, and not again',
    withScenario(async (scenario) => {
      const report = gatedHandler();
      const mails: string[] = [];
      const handlers = {
        scripted: {
          generate: { handle: report.handle, inFlightMax: 1 },
          mail: ((event) => void mails.push(event.seq)) as Handler,
        },
      };
      await scenario.relay('one', { handlers });
      await scenario.emit(['a', 'b', 'c'].map((aggregateId) => ({ aggregateId })));
      await until(() => mails.length === 3, { what: 'all mails are sent' });
      expect(report.seen.begun).toBe(1);
      report.open();
      await scenario.drained();
      expect(report.seen).toMatchObject({ begun: 3, most: 1 });
      expect(mails.toSorted()).toEqual(['1', '2', '3']);
      const rows = await scenario.db.query('select targets from postcommit.outbox_deliveries');
      for (const { targets } of rows) expect(targets.toSorted()).toEqual(['generate', 'mail']);
    }),
  );

  test(
    'order per aggregate holds, with large payloads too, and nothing is lost when the relay stops',
    withScenario(async (scenario) => {
      const padding = 'x'.repeat(40_000);
      await scenario.emit(
        Array.from({ length: 120 }, (_, n) => ({
          aggregateId: `a${n % 8}`,
          payload: { failTimes: n % 10 === 0 ? 1 : 0, workMs: 1, padding: n % 3 === 0 ? padding : '' },
        })),
      );
      const options = (name: string) => ({
        retry: { delaysMs: [0, 0] },
        batchSizeMax: 20,
        prefetchMax: 40,
        inFlightMax: 4,
        inFlightBytesMax: 200_000,
        handlers: { scripted: { script: { handle: scriptedHandler(scenario.journal, name), inFlightMax: 2 } } },
      });
      const first = await scenario.relay('first', options('first'));
      await until(() => first.stats().delivered > 20, { what: 'some are delivered' });
      await first.stop();
      expect(first.stats()).toMatchObject({ inFlight: 0, waiting: 0 });
      await scenario.relay('second', options('second'));
      await scenario.drained(60_000);
      expect(await scenario.findings()).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
    }),
  );
});

describe('rateMax of a handler', () => {
  test(
    'limits how many calls start per second',
    withScenario(async (scenario) => {
      const startedAt: number[] = [];
      const handle = () => void startedAt.push(performance.now());
      const handlers = { report: { generate: { handle, rateMax: 20 } }, mail: { send: () => {} } };
      await scenario.emit([...things('report', 12), ...things('mail', 20)]);
      const relay = await scenario.relay('one', { handlers });
      await until(() => relay.stats().delivered >= 20, { what: 'the mails are sent' });
      await scenario.drained();
      // Two start at once, the other ten at 20 a second.
      expect((startedAt.at(-1) as number) - (startedAt[0] as number)).toBeGreaterThan(450);
      expect(startedAt.length).toBe(12);
    }),
  );

  test('is a bucket of a tenth of a second, and never less than one call', () => {
    const starts = (limiter: HandlerLimiter, untilMs: number): number => {
      let count = 0;
      for (let now = 0; now <= untilMs; now++) {
        for (; limiter.waitMs(now) === 0; count++) limiter.begin(now);
      }
      return count;
    };
    expect(starts(new HandlerLimiter({ rateMax: 0.5 }), 4_000)).toBe(3);
    expect(starts(new HandlerLimiter({ rateMax: 100 }), 0)).toBe(10);
    expect(starts(new HandlerLimiter({ rateMax: 100 }), 1_000)).toBe(110);
    expect(starts(new HandlerLimiter({ rateMax: 5_000, inFlightMax: 7 }), 1_000)).toBe(7);
    const reserving = new HandlerLimiter({ inFlightMax: 2 });
    reserving.begin(0);
    expect(reserving.waitMs(0, 1)).toBe(Number.POSITIVE_INFINITY);
    reserving.end(5);
    expect(reserving.waitMs(0, 1)).toBe(0);
  });

  test('events beyond the buffer come back before their turn, the later the more there are', () => {
    const limiter = new HandlerLimiter({ rateMax: 10 });
    const delays = Array.from({ length: 5_000 }, () => limiter.releaseMs(20, 0));
    expect(delays[0]).toBe(1_000);
    expect(delays[100]).toBe(6_000);
    expect(delays.at(-1)).toBe(60_000);
    expect(limiter.releaseMs(20, 120_000)).toBe(1_000);
  });
});
