import { describe, expect, test } from 'vitest';
import { resolveConnection } from '../../src/database/connection-options.ts';
import { createOutbox, fromPg, type Schedules } from '../../src/index.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { resolveSchedules } from '../../src/relay/schedules/schedule-options.ts';
import { Scheduler } from '../../src/relay/schedules/scheduler.ts';
import { Lifecycle } from '../../src/relay/telemetry/lifecycle.ts';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { createDatabaseWithClock } from '../support/database-clock.ts';
import { RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until } from '../support/wait.ts';

const leaseMs = 3_000;
const event = { type: 'scripted', payload: null };
const everySecond: Schedules = { fast: { cron: '* * * * * *', event } };
const daily: Schedules = { daily: { cron: '0 3 * * *', timeZone: 'Europe/Berlin', event } };
const options = { leaseMs, pollIntervalMs: 100 };

const adminOf = (scenario: RelayScenario) => createOutbox({ db: fromPg(scenario.db.pool) }).admin;

async function ticks(scenario: RelayScenario): Promise<number[]> {
  const rows = await scenario.db.query<{ tick: string }>(
    `select headers ->> 'schedule-tick' as tick from postcommit.outbox_events order by seq`,
  );
  return rows.map(({ tick }) => Date.parse(tick));
}

/** As if no relay had run for a while. */
const setBack = (scenario: RelayScenario, interval: string) =>
  scenario.db.query(
    `update postcommit.outbox_schedules
        set ticked_to = date_trunc('milliseconds', clock_timestamp() - $1::interval), next_tick_at = null`,
    [interval],
  );

const known = (scenario: RelayScenario, count = 1) =>
  until(async () => (await adminOf(scenario).schedules.list()).length === count, {
    what: 'the schedules are declared',
  });

const leaderOf = async (scenario: RelayScenario): Promise<string | undefined> => {
  const [row] = await scenario.db.query(`
    select r.name from postcommit.outbox_leadership l join postcommit.outbox_relays r on r.token = l.owner
     where l.name like 'schedules:%' and l.lease_until > now() and r.ended_at is null`);
  return row?.name;
};

describe('a relay with schedules', () => {
  test(
    'emits each tick within a second of its time, and delivers it',
    withScenario(async (scenario) => {
      await scenario.relay('one', { ...options, schedules: everySecond });
      await until(async () => (await ticks(scenario)).length >= 4, { what: 'four ticks', timeoutMs: 20_000 });
      const rows = await scenario.db.query(`
        select headers, extract(epoch from created_at - (headers ->> 'schedule-tick')::timestamptz) * 1000 as late_ms
          from postcommit.outbox_events order by seq limit 4`);
      const seen = rows.map(({ headers }) => Date.parse(headers['schedule-tick']));
      expect(seen.map((tick) => (tick - (seen[0] as number)) / 1_000)).toEqual([0, 1, 2, 3]);
      const late = rows.map(({ late_ms }) => Number(late_ms)).sort((a, b) => a - b);
      expect(late[0]).toBeGreaterThanOrEqual(0);
      expect(late.at(-1)).toBeLessThan(1_000);
      expect(rows[0].headers).toMatchObject({ 'schedule-name': 'fast' });
      await until(() => scenario.journal.read().length >= 4, { what: 'they are delivered' });
    }),
  );

  test(
    'does not emit what was due before it was first seen, and says when the next tick is',
    withScenario(async (scenario) => {
      await scenario.relay('one', { ...options, schedules: daily });
      const admin = adminOf(scenario);
      const info = await until(async () => (await admin.schedules.list()).find(({ nextTickAt }) => nextTickAt), {
        what: 'the next tick is known',
      });
      expect(info).toMatchObject({
        name: 'daily',
        state: 'active',
        emitted: 0,
        declaredBy: 'one',
        timeZone: 'Europe/Berlin',
      });
      const ahead = (info.nextTickAt as Date).getTime() - (await scenario.now());
      expect(ahead).toBeGreaterThan(0);
      expect(ahead).toBeLessThan(25 * 3_600_000);
      expect(await ticks(scenario)).toEqual([]);
      expect((await admin.doctor({ only: ['schedules'] })).worst).toBe('ok');
    }),
  );

  test(
    'catches up as it is told, and the leader goes through restarts',
    withScenario(async (scenario) => {
      const hourly = (catchUp: 'none' | 'latest' | 'all') => ({
        cron: '0 * * * *',
        event: { ...event, headers: { catchUp } },
        catchUp,
        catchUpMax: 3,
      });
      const schedules = { none: hourly('none'), latest: hourly('latest'), all: hourly('all') };
      const first = await scenario.relay('first', { ...options, schedules });
      await known(scenario, 3);
      await first.stop();
      // At half past: no tick is due in the next seconds, nor was one a minute ago.
      const [{ past }] = await scenario.db.query(
        `select (clock_timestamp() - (date_trunc('hour', clock_timestamp()) - interval '30 minutes') + interval '9 hours')::text as past`,
      );
      await setBack(scenario, past);
      await scenario.relay('second', { ...options, schedules });
      const moved = `select from postcommit.outbox_schedules where ticked_to > clock_timestamp() - interval '2 hours' and next_tick_at > clock_timestamp()`;
      await until(async () => (await scenario.db.query(moved)).length === 3, {
        what: 'all have caught up',
        timeoutMs: 20_000,
      });
      const counts = await scenario.db.query(
        `select headers ->> 'schedule-name' as name, count(*)::integer as n from postcommit.outbox_events group by 1 order by 1`,
      );
      const byName = Object.fromEntries(counts.map(({ name, n }) => [name, n]));
      // In the first minute of an hour, its tick is not missed and comes on top.
      expect([undefined, 1]).toContain(byName.none);
      expect(byName.latest).toBe(1);
      expect([3, 4]).toContain(byName.all);
    }),
  );

  test(
    'hands over to another one, and each tick is emitted once',
    withScenario(async (scenario) => {
      const schedules = { fast: { cron: '* * * * * *', event, catchUp: 'all', catchUpMax: 1_000 } } as const;
      const first = await scenario.relay('relay 0', { ...options, schedules });
      await known(scenario);
      await setBack(scenario, '900 seconds');
      let leading = first;
      for (let n = 1; n <= 4; n++) {
        await until(async () => (await leaderOf(scenario)) === `relay ${n - 1}`, { what: `relay ${n - 1} leads` });
        const next = await scenario.relay(`relay ${n}`, { ...options, schedules });
        const before = (await ticks(scenario)).length;
        await until(async () => (await ticks(scenario)).length > before, { what: 'more ticks', timeoutMs: 20_000 });
        await leading.stop();
        leading = next;
      }
      const caughtUp = `select from postcommit.outbox_schedules where ticked_to > clock_timestamp() - interval '3 seconds'`;
      await until(async () => (await scenario.db.query(caughtUp)).length === 1, {
        what: 'it has caught up',
        timeoutMs: 40_000,
      });
      const seen = await ticks(scenario);
      expect(seen.length).toBeGreaterThanOrEqual(900);
      const start = seen[0] as number;
      expect(seen.map((tick) => (tick - start) / 1_000)).toEqual(seen.map((_, index) => index));
    }),
    90_000,
  );

  test(
    'killed, it is replaced, and the ticks of that time are emitted late',
    withScenario(async (scenario) => {
      const child = await scenario.child('killed', { ...options, schedules: everySecond });
      await until(async () => (await ticks(scenario)).length >= 2, { what: 'two ticks', timeoutMs: 20_000 });
      const second = await scenario.relay('second', { ...options, schedules: everySecond });
      child.kill('SIGKILL');
      await nextEvent(second, 'scheduleEmitted', 20_000);
      const atTakeover = (await ticks(scenario)).length;
      await until(async () => (await ticks(scenario)).length > atTakeover, { what: 'one more' });
      const seen = await ticks(scenario);
      const start = seen[0] as number;
      expect(seen.map((tick) => (tick - start) / 1_000)).toEqual(seen.map((_, index) => index));
    }),
    60_000,
  );

  test(
    'is paused, triggered and resumed by operators',
    withScenario(async (scenario) => {
      const { schedules } = adminOf(scenario);
      const relay = await scenario.relay('one', { ...options, schedules: daily });
      await known(scenario);
      await schedules.pause('daily', { reason: 'the warehouse is being moved' });
      expect(await schedules.list()).toMatchObject([{ state: 'paused', reason: 'the warehouse is being moved' }]);
      await setBack(scenario, '40 days');
      const told = nextEvent<{ schedule: string; triggered: boolean }>(relay, 'scheduleEmitted');
      expect(await schedules.trigger('daily')).toEqual({ emitted: true });
      expect(await told).toMatchObject({ schedule: 'daily', triggered: true });
      const [{ headers }] = await scenario.db.query('select headers from postcommit.outbox_events');
      expect(headers).toMatchObject({ 'schedule-name': 'daily', 'schedule-triggered': 'true' });
      await schedules.resume('daily');
      await until(async () => (await schedules.list())[0]?.nextTickAt, { what: 'the next tick is known' });
      expect(await schedules.list()).toMatchObject([{ state: 'active', emitted: 1 }]);
      expect(await ticks(scenario)).toHaveLength(1);
      await expect(schedules.remove('daily')).rejects.toMatchObject({ code: 'POSTCOMMIT_E_SCHEDULE_IN_USE' });
      await expect(schedules.pause('dayly')).rejects.toThrow('Did you mean daily?');
      await expect(schedules.trigger('a\0b')).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NO_SUCH_SCHEDULE' });
    }),
  );

  test(
    'that lacks a schedule neither removes it nor keeps the relay that has it from emitting',
    withScenario(async (scenario) => {
      const { schedules } = adminOf(scenario);
      await scenario.relay('without', options);
      const other = await scenario.relay('other', { ...options, schedules: daily });
      await scenario.relay('one', { ...options, maintenance: false, schedules: everySecond });
      await until(async () => (await ticks(scenario)).length >= 2, { what: 'two ticks', timeoutMs: 20_000 });
      await other.stop();
      expect(await schedules.list()).toMatchObject([
        { name: 'daily', state: 'unserved', declaredBy: 'other', declarations: [] },
        { name: 'fast', state: 'active', declarations: [{ relay: 'one' }] },
      ]);
      await schedules.remove('daily');
      expect((await schedules.list()).map(({ name }) => name)).toEqual(['fast']);
    }),
  );

  test(
    'whose event fails says so, retries, and does not delay the others',
    withScenario(async (scenario) => {
      const admin = adminOf(scenario);
      let broken = false;
      const fails = () => {
        if (broken) throw new Error('connection terminated: no such customer');
        return event;
      };
      const relay = scenario.idleRelay('one', {
        ...options,
        schedules: { a: { cron: '* * * * * *', event: fails }, ...everySecond },
      });
      broken = true;
      const failed = nextEvent<{ schedule: string; error: string }>(relay, 'scheduleFailed', 20_000);
      await relay.start();
      expect(await failed).toMatchObject({ schedule: 'a', error: expect.stringContaining('no such customer') });
      await until(async () => (await ticks(scenario)).length >= 2, {
        what: 'two ticks of the other',
        timeoutMs: 20_000,
      });
      const list = await admin.schedules.list();
      expect(list).toMatchObject([
        { name: 'a', state: 'failing', error: expect.stringContaining('no such customer') },
        { name: 'fast', state: 'active' },
      ]);
      const { findings } = await admin.doctor({ only: ['schedules'] });
      expect(findings).toMatchObject([{ severity: 'warning', what: expect.stringContaining('no such customer') }]);
      broken = false;
      await until(async () => (await admin.schedules.list())[0]?.state === 'active', {
        what: 'it emits again',
        timeoutMs: 20_000,
      });
      expect((await admin.schedules.list())[0]?.error).toBeUndefined();
    }),
    60_000,
  );

  test(
    'with a new expression counts anew, and emits nothing of the past',
    withScenario(async (scenario) => {
      const first = await scenario.relay('first', { ...options, schedules: { it: { cron: '0 3 * * *', event } } });
      await known(scenario);
      await first.stop();
      await setBack(scenario, '3 days');
      await scenario.relay('second', { ...options, schedules: { it: { cron: '0 4 1 1 *', event } } });
      const info = await until(
        async () =>
          (await adminOf(scenario).schedules.list()).find((each) => each.cron === '0 4 1 1 *' && each.nextTickAt),
        {
          what: 'the new expression is in force',
        },
      );
      expect((info.nextTickAt as Date).toISOString()).toMatch(/-01-01T04:00:00.000Z$/);
      expect(await ticks(scenario)).toEqual([]);
    }),
  );

  test(
    'with a new expression has it in force soon after the last relay with the old one has stopped',
    withScenario(async (scenario) => {
      const { schedules } = adminOf(scenario);
      const first = await scenario.relay('first', { ...options, schedules: daily });
      await known(scenario);
      const hourly = { daily: { cron: '0 * * * *', timeZone: 'Europe/Berlin', event } };
      await scenario.relay('second', { ...options, schedules: hourly });
      await until(async () => (await schedules.list())[0]?.declarations.length === 2, { what: 'both declare it' });
      expect(await schedules.list()).toMatchObject([{ cron: '0 3 * * *' }]);
      await first.stop();
      await until(async () => (await schedules.list())[0]?.cron === '0 * * * *', { what: 'the new one is in force' });
    }),
  );

  test(
    'that differ from those in force declares them once, and not once for each',
    withScenario(async (scenario) => {
      const named = (cron: string): Schedules =>
        Object.fromEntries(['a', 'b', 'c', 'd', 'e'].map((name) => [name, { cron, event }]));
      await scenario.relay('old', { ...options, schedules: named('0 3 * * *') });
      await known(scenario, 5);
      const { pool } = scenario.db;
      const token = await registerRelay(pool, 'postcommit', { name: 'new', host: 'h', pid: 1, leaseMs: 60_000 });
      let declared = 0;
      const scheduler = new Scheduler({
        schema: 'postcommit',
        relay: 'new',
        servers: resolveConnection({ connectionString: scenario.db.url }),
        schedules: [...resolveSchedules(named('0 4 * * *')), ...resolveSchedules(everySecond)],
        control: pool,
        db: {
          query: (text, values) => {
            if (text.includes('declare_schedules')) declared++;
            return pool.query(text, values);
          },
        },
        leaseMs,
        token: () => token,
        lifecycle: new Lifecycle(),
        logger: silentLogger,
      });
      await scheduler.once();
      await scheduler.stop();
      expect(declared).toBe(1);
      const list = await adminOf(scenario).schedules.list();
      // The pass is over: it has computed when the next tick is.
      expect(list.find(({ name }) => name === 'fast')).toMatchObject({ nextTickAt: expect.any(Date) });
      expect(list.filter(({ cron }) => cron === '0 3 * * *')).toHaveLength(5);
    }),
  );

  test(
    'that runs once emits what is due and delivers it',
    withScenario(async (scenario) => {
      const relay = scenario.idleRelay('cron', { ...options, schedules: daily });
      expect(await relay.runOnce()).toMatchObject({ delivered: 0 });
      await setBack(scenario, '3 days');
      expect(await relay.runOnce()).toMatchObject({ delivered: 1 });
      expect(await relay.runOnce()).toMatchObject({ delivered: 0 });
    }),
  );
});

test('the clock of the database decides, and one that is set back repeats no tick', { timeout: 60_000 }, async () => {
  const { db, shift } = await createDatabaseWithClock();
  const scenario = new RelayScenario(db);
  try {
    await scenario.relay('one', { ...options, leaseMs: 30_000, schedules: daily });
    await known(scenario);
    const { schedules } = adminOf(scenario);
    await until(async () => (await schedules.list())[0]?.nextTickAt, { what: 'the next tick is known' });
    await shift(24 * 3_600_000);
    await until(async () => (await ticks(scenario)).length === 1, { what: 'its tick is emitted' });
    await shift(-24 * 3_600_000);
    // A trigger goes through the same pass, so the ticks were looked at after the clock was set.
    expect(await schedules.trigger('daily', { waitMs: 20_000 })).toEqual({ emitted: true });
    await shift(24 * 3_600_000);
    expect(await schedules.trigger('daily', { waitMs: 20_000 })).toEqual({ emitted: true });
    expect(await schedules.list()).toMatchObject([{ emitted: 3 }]);
  } finally {
    await scenario.close();
  }
});
