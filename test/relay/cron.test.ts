import { describe, expect, test } from 'vitest';
import { CronExpression, dueTicks } from '../../src/relay/schedules/cron.ts';

const at = (text: string) => Date.parse(text);
const iso = (ticks: readonly number[]) => ticks.map((tick) => new Date(tick).toISOString());
const everyMinute = new CronExpression('* * * * *', 'UTC');
const policy = { catchUp: 'latest', catchUpMax: 3, missedAfterMs: 150_000 } as const;

describe('ticks', () => {
  test('of a time zone whose clocks change: one tick for the hour that is left out, one for the hour that comes twice', () => {
    const daily = new CronExpression('30 2 * * *', 'Europe/Berlin');
    const from = (text: string) => {
      const first = daily.next(at(text)) as number;
      const second = daily.next(first) as number;
      return iso([first, second, daily.next(second) as number]);
    };
    expect(from('2026-03-27T12:00:00Z')).toEqual([
      '2026-03-28T01:30:00.000Z',
      '2026-03-29T01:00:00.000Z',
      '2026-03-30T00:30:00.000Z',
    ]);
    expect(from('2026-10-24T12:00:00Z')).toEqual([
      '2026-10-25T00:30:00.000Z',
      '2026-10-26T01:30:00.000Z',
      '2026-10-27T01:30:00.000Z',
    ]);
  });

  test('found backwards are those found forwards, also where clocks change', () => {
    for (const cron of ['30 2 * * *', '0 */6 * * *', '0 0 * * MON', '15 30 1-3 * * *', '0 12 L * *']) {
      for (const timeZone of ['UTC', 'Europe/Berlin', 'Australia/Lord_Howe']) {
        const expression = new CronExpression(cron, timeZone);
        for (const [from, to] of [
          ['2026-03-27T00:00:00Z', '2026-04-01T12:00:00Z'],
          ['2026-10-24T00:00:00.500Z', '2026-11-02T00:00:00.001Z'],
        ] as const) {
          const forwards: number[] = [];
          for (let tick = expression.next(at(from)); tick !== undefined && tick <= at(to); ) {
            forwards.push(tick);
            tick = expression.next(tick);
          }
          expect(iso(expression.latest(at(from), at(to), 5)), `${cron} ${timeZone}`).toEqual(iso(forwards.slice(-5)));
        }
      }
    }
  });

  test('are after the one time and up to the other, to the second', () => {
    const everySecond = new CronExpression('* * * * * *', 'UTC');
    const to = at('2026-01-01T00:00:02Z');
    expect(iso(everySecond.latest(at('2026-01-01T00:00:00Z'), to, 9))).toEqual([
      '2026-01-01T00:00:01.000Z',
      '2026-01-01T00:00:02.000Z',
    ]);
    expect(everySecond.latest(to - 2_000, to - 1, 9)).toEqual([to - 1_000]);
  });
});

describe('due', () => {
  const last = at('2026-01-01T00:00:00Z');
  const due = (minutes: number, catchUp: 'none' | 'latest' | 'all') => {
    const { ticks, skipTo } = dueTicks(everyMinute, last, last + minutes * 60_000, { ...policy, catchUp });
    return { ticks: ticks.map((tick) => (tick - last) / 60_000), skipTo: skipTo && (skipTo - last) / 60_000 };
  };

  test.each(['none', 'latest', 'all'] as const)('%s: every tick that is not missed', (catchUp) => {
    expect(due(0.99, catchUp)).toEqual({ ticks: [], skipTo: undefined });
    expect(due(1, catchUp)).toEqual({ ticks: [1], skipTo: undefined });
    expect(due(3.4, catchUp)).toEqual({ ticks: [1, 2, 3], skipTo: undefined });
  });

  test('missed ticks before others that are not', () => {
    expect(due(10, 'none').ticks).toEqual([8, 9, 10]);
    expect(due(10, 'latest').ticks).toEqual([8, 9, 10]);
    expect(due(10, 'all').ticks).toEqual([5, 6, 7, 8, 9, 10]);
  });

  test('missed ticks alone', () => {
    const hourly = new CronExpression('0 * * * *', 'UTC');
    const due = (catchUp: 'none' | 'latest' | 'all') => {
      const { ticks, skipTo } = dueTicks(hourly, last, last + 5.5 * 3_600_000, { ...policy, catchUp });
      return { ticks: ticks.map((tick) => (tick - last) / 3_600_000), skipTo: skipTo && (skipTo - last) / 3_600_000 };
    };
    expect(due('none')).toEqual({ ticks: [], skipTo: 5 });
    expect(due('latest')).toEqual({ ticks: [5], skipTo: undefined });
    expect(due('all')).toEqual({ ticks: [3, 4, 5], skipTo: undefined });
  });

  test('nothing, when the clock of the database was set back', () => {
    expect(due(-60, 'all')).toEqual({ ticks: [], skipTo: undefined });
  });
});
