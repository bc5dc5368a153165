import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import type { Logger } from '../../src/index.ts';
import { SparseLog } from '../../src/telemetry/logging.ts';
import { seededRandom } from '../support/random.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until } from '../support/wait.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** What is really in use: garbage may stay for long, and says nothing about what the relay holds. */
function memoryInUse(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

describe('G8 bounded', () => {
  test.each([
    { prefetchMax: 2, batchSizeMax: 2, inFlightMax: 1 },
    { prefetchMax: 3, batchSizeMax: 2, inFlightMax: 3 },
    { prefetchMax: 10, batchSizeMax: 5, inFlightMax: 3 },
    { prefetchMax: 50, batchSizeMax: 50, inFlightMax: 7 },
  ])('a relay never holds or delivers more than $prefetchMax / $inFlightMax', (limits) =>
    withScenario(async (scenario) => {
      const random = seededRandom();
      await scenario.emit(
        Array.from({ length: 300 }, () => ({
          aggregateId: `a${random.integer(1, 30)}`,
          ...(random.chance(0.3) ? { delayMs: random.integer(0, 200) } : {}),
          ...(random.chance(0.2) ? { key: null } : {}),
        })),
      );
      let atOnce = 0;
      let atOnceMax = 0;
      const relay = await scenario.relay('one', {
        ...limits,
        retry: { delaysMs: [0, 0, 5, 5] },
        handlers: {
          scripted: {
            script: async (_event, ctx) => {
              atOnceMax = Math.max(atOnceMax, ++atOnce);
              await sleep(random.integer(0, 3));
              atOnce--;
              if (ctx.attempt === 1 && random.chance(0.2)) throw new Error('once more');
            },
          },
        },
      });
      let heldMax = 0;
      await until(
        async () => {
          const [{ held, left }] = await scenario.db.query(
            'select count(claimed_by)::integer as held, count(*)::integer as left from postcommit.outbox_queue',
          );
          heldMax = Math.max(heldMax, held);
          return left === 0;
        },
        { timeoutMs: 40_000, what: 'the queue is empty' },
      );
      expect(heldMax).toBeLessThanOrEqual(limits.prefetchMax);
      expect(heldMax).toBeGreaterThan(0);
      expect(atOnceMax).toBe(limits.inFlightMax);
      expect(relay.stats()).toMatchObject({ delivered: 300, deadLettered: 0 });
    })(),
  );

  test.each([
    ['that do not compress', 'substr(random.text, n * 100)'],
    ['that compress well', `repeat(n::text || ' ', 120000)`],
  ])('large payloads %s do not fill the memory, and arrive as they were', (_name, text) =>
    withScenario(async (scenario) => {
      // Trying to compress it would take most of the test's time.
      await scenario.db.query(
        `alter table postcommit.outbox_events alter column payload set storage ${/random/.test(text) ? 'external' : 'extended'}`,
      );
      await scenario.db.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         select 'thing', (n % 50)::text, 'scripted', jsonb_build_object('n', n, 'text', ${text})
           from generate_series(1, 300) n, (select string_agg(md5(i::text), '') as text from generate_series(1, 15000) i) random`,
      );
      const [{ bytes }] = await scenario.db.query(
        'select sum(length(payload::text))::bigint as bytes from postcommit.outbox_events',
      );
      expect(Number(bytes)).toBeGreaterThan(100_000_000);
      const before = memoryInUse();
      let inUseMax = 0;
      const sizes = new Map<string, number>();
      await scenario.relay('one', {
        inFlightMax: 5,
        handlers: {
          scripted: {
            script: async (event) => {
              sizes.set(event.seq, event.payload.text.length);
              if (sizes.size % 20 === 0) inUseMax = Math.max(inUseMax, memoryInUse());
              await sleep(1);
            },
          },
        },
      });
      await scenario.drained();
      expect(sizes.size).toBe(300);
      const lengths = await scenario.db.query(
        `select seq::text, length(payload ->> 'text') as length from postcommit.outbox_events`,
      );
      for (const { seq, length } of lengths) expect(sizes.get(seq)).toBe(length);
      expect((inUseMax - before) / 1e6).toBeLessThan(50);
    })(),
  );

  test(
    'an outage is logged sparingly, and never given up on',
    withScenario(async (scenario) => {
      const lines: string[] = [];
      const log = (_fields: object, message: string) => void lines.push(message);
      const logger: Logger = { debug: log, info: log, warn: log, error: log };
      const proxy = await scenario.proxy();
      const url = proxy.url(scenario.db.url);
      const relay = await scenario.relay('one', { connectionString: url, logger, leaseMs: 500, pollIntervalMs: 10 });
      await scenario.emitLine('a', 50, { workMs: 5 });
      proxy.refuse();
      proxy.cut();
      const startedAt = performance.now();
      await until(() => performance.now() - startedAt > 3_000, { what: 'three seconds have passed' });
      expect(lines.length).toBeGreaterThan(0);
      expect(lines.length).toBeLessThan(25);
      proxy.accept();
      await scenario.drained();
      await until(() => relay.stats().connected, { what: 'every connection is up again' });
    }),
  );

  test('a message that repeats is written once per interval, with the number left out', async () => {
    const written: number[] = [];
    const log = new SparseLog(50);
    for (let n = 0; n < 1_000; n++) log.say('same', (suppressed) => written.push(suppressed));
    expect(written).toEqual([0]);
    await until(
      () => {
        log.say('same', (suppressed) => written.push(suppressed));
        return written.length === 2;
      },
      { what: 'the interval has passed' },
    );
    expect(written[1]).toBeGreaterThanOrEqual(999);
    log.say('other', (suppressed) => written.push(suppressed));
    expect(written[2]).toBe(0);
  });

  test(
    'a listener that throws does not stop the relay, and is logged',
    withScenario(async (scenario) => {
      const logged: object[] = [];
      const ignore = () => {};
      const error = (fields: object, message: string) => void logged.push({ ...fields, message });
      const relay = scenario.idleRelay('one', { logger: { debug: ignore, info: ignore, warn: ignore, error } });
      for (const event of ['started', 'claimed', 'delivered', 'stopped'] as const) {
        relay.on(event, () => {
          throw new Error(`listener of ${event}`);
        });
      }
      await scenario.emitLine('a', 20);
      const last = nextEvent(relay, 'stopped');
      await relay.start();
      await scenario.drained();
      await relay.stop();
      await last;
      expect(relay.stats()).toMatchObject({ state: 'idle', delivered: 20 });
      expect(logged).toContainEqual(
        expect.objectContaining({
          lifecycle: 'delivered',
          error: 'listener of delivered',
          message: 'a lifecycle listener threw',
        }),
      );
      expect(logged).toHaveLength(4);
    }),
  );
});
