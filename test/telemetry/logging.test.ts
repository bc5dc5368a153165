import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { jsonLogger, SparseLog, stderrLogger } from '../../src/telemetry/logging.ts';

describe('SparseLog', () => {
  let now = 0;
  beforeEach(() => {
    now = 1_000_000;
    vi.spyOn(performance, 'now').mockImplementation(() => now);
  });
  afterEach(() => vi.restoreAllMocks());

  /** Says it once for each kind; answers for which of them it was written, and how many were left out. */
  function say(log: SparseLog, kinds: string[]): Record<string, number> {
    const written: Record<string, number> = {};
    for (const kind of kinds) {
      log.say(kind, (suppressed) => {
        written[kind] = suppressed;
      });
    }
    return written;
  }

  test('writes each kind once per interval, and then says how many were left out', () => {
    const log = new SparseLog(10_000);
    expect(say(log, ['a', 'b', 'a', 'a'])).toEqual({ a: 0, b: 0 });
    now += 9_999;
    expect(say(log, ['a', 'b'])).toEqual({});
    now += 1;
    expect(say(log, ['b', 'a'])).toEqual({ a: 3, b: 1 });
    now += 20_000;
    expect(say(log, ['a', 'b'])).toEqual({ a: 0, b: 0 });
  });

  test('stays sparse however many kinds there are: names from outside are no way around it', () => {
    const log = new SparseLog(10_000);
    const kinds = Array.from({ length: 5_000 }, (_, n) => `retry:type ${n}`);
    let lines = 0;
    for (let round = 0; round < 4; round++) lines += Object.keys(say(log, kinds)).length;
    expect(lines).toBeLessThanOrEqual(1_001);
    // A known kind is still told from the others, and those that were quiet for long make room.
    now += 10_000;
    expect(say(log, ['retry:type 0'])).toEqual({ 'retry:type 0': 3 });
    expect(Object.keys(say(log, ['a new kind', 'another new kind']))).toHaveLength(2);
  });
});

test('jsonLogger writes one line each, from the level asked for', () => {
  const lines: string[] = [];
  const logger = jsonLogger((line) => lines.push(line), 'warn');
  logger.debug({}, 'no');
  logger.info({}, 'no');
  logger.warn({ event_id: '1', text: 'two\nlines' }, 'careful');
  logger.error({}, 'broken');
  expect(lines.every((line) => line.endsWith('\n') && !line.slice(0, -1).includes('\n'))).toBe(true);
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { level: 'warn', message: 'careful', event_id: '1', text: 'two\nlines', time: expect.any(String) },
    { level: 'error', message: 'broken' },
  ]);
});

test('a relay logs warnings and errors to standard error by default, without passwords', () => {
  const written = vi.spyOn(console, 'error').mockImplementation(() => {});
  try {
    stderrLogger.info({}, 'no');
    stderrLogger.warn({ error: 'cannot connect to postgres://shop:hunter2@db/shop' }, 'database unreachable, retrying');
    expect(written.mock.calls).toHaveLength(1);
    const line = String(written.mock.calls[0]?.[0]);
    expect(JSON.parse(line)).toMatchObject({ level: 'warn', error: 'cannot connect to postgres://shop:***@db/shop' });
    expect(line).not.toContain('\n');
  } finally {
    written.mockRestore();
  }
});
