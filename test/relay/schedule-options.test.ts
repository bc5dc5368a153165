import { describe, expect, test } from 'vitest';
import { createRelay, PostcommitError, type Schedules } from '../../src/index.ts';
import { eventsOfTick } from '../../src/relay/schedules/scheduled-event.ts';

const event = { type: 'report.requested', payload: { kind: 'daily' } };
const create = (schedules: unknown) =>
  createRelay({
    connectionString: 'postgres://127.0.0.1/x',
    handlers: { 'report.requested': { generate: () => {} } },
    schedules: schedules as Schedules,
  });
const refusal = (schedules: unknown): PostcommitError => {
  try {
    create(schedules);
  } catch (error) {
    expect(error).toBeInstanceOf(PostcommitError);
    return error as PostcommitError;
  }
  throw new Error('it was accepted');
};
const thousandAndOne = Object.fromEntries(
  Array.from({ length: 1_001 }, (_, n) => [`s${n}`, { cron: '0 3 * * *', event }]),
);

describe('a schedule is refused', () => {
  test.each([
    ['that never fires', { a: { cron: '0 0 31 2 *', event } }, 'never fires'],
    ['with an invalid expression', { a: { cron: '61 * * * *', event } }, 'is invalid'],
    ['with too few fields', { a: { cron: '* * *', event } }, 'five fields are required, or six with seconds first'],
    ['with a year', { a: { cron: '0 0 0 1 1 * 2030', event } }, 'is invalid'],
    ['with a date', { a: { cron: '2030-01-01T00:00:00', event } }, 'is invalid'],
    ['without an expression', { a: { event } }, 'cron must be'],
    ['with an endless expression', { a: { cron: '*'.repeat(201), event } }, 'at most 200 characters'],
    ['with an unknown time zone', { a: { cron: '0 3 * * *', timeZone: 'Mars/Base', event } }, 'Got "Mars/Base"'],
    ['with an empty time zone', { a: { cron: '0 3 * * *', timeZone: '', event } }, 'IANA'],
    ['with an empty name', { '': { cron: '0 3 * * *', event } }, 'have 1 to 100'],
    ['with a name of several words', { 'a b': { cron: '0 3 * * *', event } }, 'have 1 to 100'],
    ['beyond the thousandth', thousandAndOne, 'at most 1000 schedules. Got 1001'],
    ['with a misspelt option', { a: { cron: '0 3 * * *', timezone: 'UTC', event } }, 'Did you mean timeZone?'],
    ['with an unknown policy', { a: { cron: '0 3 * * *', event, catchUp: 'some' } }, 'none, latest, all'],
    ['with no bound', { a: { cron: '0 3 * * *', event, catchUp: 'all', catchUpMax: 1e9 } }, 'from 1 to 1000'],
    ['with a deadline of nothing', { a: { cron: '0 3 * * *', event, missedAfterMs: 0 } }, 'from 1000 to 3600000'],
    ['without an event', { a: { cron: '0 3 * * *' } }, 'Its event is invalid'],
    ['with an invalid event', { a: { cron: '0 3 * * *', event: { type: '', payload: 1 } } }, 'type must be'],
    ['without a payload', { a: { cron: '0 3 * * *', event: { type: 'a' } } }, 'payload is undefined; use null'],
    ['with an event with an id', { a: { cron: '0 3 * * *', event: { ...event, id: 'x' } } }, 'Leave id out'],
    ['with a function that throws', { a: { cron: '0 3 * * *', event: () => Number('x').toFixed(500) } }, 'RangeError'],
    ['with an async function', { a: { cron: '0 3 * * *', event: async () => event } }, 'not a promise'],
    ['with no events', { a: { cron: '0 3 * * *', event: () => [] } }, '1 to 100 events'],
    ['with too many headers', { a: { cron: '0 3 * * *', event: { ...event, headers: manyHeaders() } } }, '128'],
  ])('%s', (_what, schedules, why) => {
    const { code, message } = refusal(schedules);
    expect(code).toBe('POSTCOMMIT_E_BAD_SCHEDULE');
    expect(message).toContain(why);
  });
});

test.each(['0 3 * * *', '*/10 * * * * *', '@daily', '0 9 * * MON-FRI', '0 0 29 2 *', '0 12 L * *'])(
  '%s is taken',
  (cron) => {
    create({ 'nightly-report:1.a_B': { cron, timeZone: 'Europe/Berlin', event } });
  },
);

test('the event of a tick has the tick in its headers, and an id that every relay derives', () => {
  const at = new Date('2026-01-01T03:00:00Z');
  const schedule = { name: 'nightly', event: ({ at }: { at: Date }) => [{ ...event, payload: at }, event] };
  const tick = { schedule: 'nightly', at, triggered: false };
  const [first, second] = eventsOfTick(schedule, tick, 'row');
  expect(first).toMatchObject({
    type: 'report.requested',
    aggregateType: 'schedule',
    aggregateId: 'nightly',
    payloadJson: '"2026-01-01T03:00:00.000Z"',
    headers: { 'schedule-name': 'nightly', 'schedule-tick': '2026-01-01T03:00:00.000Z' },
  });
  expect(first?.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const ids = (scheduleId: string, at: Date) => eventsOfTick(schedule, { ...tick, at }, scheduleId).map(({ id }) => id);
  expect(ids('row', at)).toEqual([first?.id, second?.id]);
  expect(new Set([...ids('row', at), ...ids('other', at), ...ids('row', new Date(0))]).size).toBe(6);
  const triggered = eventsOfTick(schedule, { ...tick, triggered: true }, 'row');
  expect(triggered[0]?.id).not.toBe(first?.id);
  expect(triggered[0]?.headers).toMatchObject({ 'schedule-triggered': 'true' });
});

function manyHeaders(): Record<string, string> {
  return Object.fromEntries(Array.from({ length: 127 }, (_, n) => [`h${n}`, 'x']));
}
