import { expect, test } from 'vitest';
import { isUuid, uuidV7 } from '../src/uuid.ts';

const version7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const timeOf = (id: string) => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);

test('ids are UUIDs of version 7 that carry the time', () => {
  const before = Date.now();
  const ids = Array.from({ length: 10_000 }, () => uuidV7());
  for (const id of ids) expect(id).toMatch(version7);
  expect(new Set(ids).size).toBe(ids.length);
  expect(timeOf(ids[0] ?? '')).toBeGreaterThanOrEqual(before);
  expect(timeOf(ids.at(-1) ?? '')).toBeLessThanOrEqual(Date.now() + 10);
});

test('ids sort in the order they were made: in one millisecond, and when the clock is set back', () => {
  const start = Date.now() + 60_000;
  const times = [...Array.from({ length: 10_000 }, () => start), start - 3_600_000, start - 1, start + 20_000];
  const ids = times.map((now) => uuidV7(now));
  expect([...ids].sort()).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
  expect(timeOf(ids.at(-1) ?? '')).toBe(start + 20_000);
});

test('isUuid knows a UUID', () => {
  for (const text of [uuidV7(), '00000000-0000-0000-0000-000000000000', 'FFFFFFFF-ffff-4fff-8fff-ffffffffffff']) {
    expect(isUuid(text)).toBe(true);
  }
  for (const value of ['', 'x', `${uuidV7()} `, `{${uuidV7()}}`, uuidV7().replaceAll('-', ''), 5, null, undefined]) {
    expect(isUuid(value)).toBe(false);
  }
});
