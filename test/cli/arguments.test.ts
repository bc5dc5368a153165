import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { aggregateArgument, parseDuration, parseTime, timeArgument, wholeNumber } from '../../src/cli/arguments.ts';

describe('durations', () => {
  it.each([
    ['500ms', 500],
    ['90s', 90_000],
    ['30m', 1_800_000],
    ['30min', 1_800_000],
    ['2h', 7_200_000],
    ['1h30m', 5_400_000],
    ['1.5h', 5_400_000],
    ['7d', 604_800_000],
    ['2w', 1_209_600_000],
    ['0s', 0],
  ])('%s is %d ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  it.each(['', '5', 'h', '2 h', '-2h', '2y', '1e3s', '2hours', 'h2', '2h '])('%j is none', (text) => {
    expect(parseDuration(text)).toBeUndefined();
  });

  it('never answers NaN, whatever the text', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.stringMatching(/^[0-9.msinhdw]{0,12}$/)), (text) => {
        expect(parseDuration(text) ?? 0).toBeGreaterThanOrEqual(0);
      }),
    );
  });
});

describe('points in time', () => {
  const now = new Date('2026-03-10T12:00:00Z');

  it('takes a duration as so long ago', () => {
    expect(parseTime('2h', now)?.toISOString()).toBe('2026-03-10T10:00:00.000Z');
  });

  it.each([
    ['2026-01-31T12:00:00Z', '2026-01-31T12:00:00.000Z'],
    ['2026-01-31T12:00+02:00', '2026-01-31T10:00:00.000Z'],
    ['2026-01-31 12:00:00.250Z', '2026-01-31T12:00:00.250Z'],
  ])('takes the ISO date %s', (text, iso) => {
    expect(parseTime(text, now)?.toISOString()).toBe(iso);
  });

  it('takes a date alone as local midnight', () => {
    expect(parseTime('2026-01-31', now)).toEqual(new Date(2026, 0, 31));
  });

  it.each(['yesterday', '31.01.2026', '2026', '12', '2026-13-01', '2026-01-31T25:00Z', ''])('refuses %j', (text) => {
    expect(parseTime(text, now)).toBeUndefined();
    expect(() => timeArgument(text)).toThrow(/2h, 30m or 7d ago/);
  });

  it.each(['2026-02-31', '2026-02-29', '2026-04-31T12:00:00Z', '2026-00-10', '2026-01-00'])(
    'refuses %s, a day that does not exist',
    (text) => {
      expect(parseTime(text, now)).toBeUndefined();
    },
  );

  it.each(['2024-02-29', '2026-12-31T23:59:59Z'])('takes %s, the last day of its month', (text) => {
    expect(parseTime(text, now)).toBeInstanceOf(Date);
  });
});

describe('numbers and aggregates', () => {
  it('takes whole numbers within limits and nothing else', () => {
    const parse = wholeNumber(1, 100);
    expect(parse('1')).toBe(1);
    expect(parse('100')).toBe(100);
    for (const text of ['0', '101', '1.5', '-1', '1e1', '0x1', '', ' 1', 'ten']) {
      expect(() => parse(text), text).toThrow('from 1 to 100');
    }
  });

  it('splits an aggregate at its first colon', () => {
    expect(aggregateArgument('order')).toEqual(['order']);
    expect(aggregateArgument('order:42')).toEqual(['order', '42']);
    expect(aggregateArgument('order:a:b')).toEqual(['order', 'a:b']);
    for (const text of ['', ':42', 'order:']) expect(() => aggregateArgument(text), text).toThrow('type:id');
  });
});
