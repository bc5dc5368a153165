import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { declareSchedules } from '../../src/outbox/maintaining/declare-schedules.ts';
import { emitTick } from '../../src/outbox/maintaining/emit-tick.ts';
import type { ScheduleRow } from '../../src/outbox/maintaining/read-schedules.ts';
import { readSchedules } from '../../src/outbox/maintaining/read-schedules.ts';
import { takeDuty } from '../../src/outbox/maintaining/take-duty.ts';
import { CronExpression, dueTicks } from '../../src/relay/schedules/cron.ts';
import { eventsOfTick } from '../../src/relay/schedules/scheduled-event.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { seededRandom } from '../support/random.ts';

const schema = 'postcommit';
const schedule = { name: 'every-second', cron: '* * * * * *', timeZone: 'UTC' };
const event = { type: 'tick', payload: null };
const duty = 'schedules:test';

describe.each(postgresVersions)('emit_tick on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let tokens: string[];

  beforeAll(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
  });
  afterAll(async () => {
    await db?.close();
  });
  beforeEach(async () => {
    await db.query('truncate postcommit.outbox_schedules, postcommit.outbox_leadership, postcommit.outbox_events');
    await db.query('delete from postcommit.outbox_queue');
    const relay = (name: string) => registerRelay(db.pool, schema, { name, host: 'h', pid: 1, leaseMs: 3_600_000 });
    tokens = [await relay('a'), await relay('b')];
    await declareSchedules(db.pool, schema, { token: tokens[0] as string, name: 'a' }, [schedule]);
  });

  async function take(n: number): Promise<{ name: string; owner: string; epoch: string }> {
    const owner = tokens[n] as string;
    await db.query(`update postcommit.outbox_leadership set lease_until = '-infinity'`);
    return { name: duty, owner, epoch: (await takeDuty(db.pool, schema, { name: duty, owner }, 3_600_000)) as string };
  }

  async function setBack(seconds: number): Promise<void> {
    await db.query(
      `update postcommit.outbox_schedules
      set ticked_to = date_trunc('milliseconds', clock_timestamp() - $1 * interval '1 second')`,
      [seconds],
    );
  }

  async function read(): Promise<{ nowMs: number; row: ScheduleRow }> {
    const { nowMs, schedules } = await readSchedules(db.pool, schema, [schedule.name]);
    return { nowMs, row: schedules[0] as ScheduleRow };
  }

  function emit(held: Awaited<ReturnType<typeof take>>, row: ScheduleRow, tickMs: number, trigger?: number) {
    const at = new Date(tickMs);
    const facts = { schedule: row.name, at, triggered: trigger !== undefined };
    const events = eventsOfTick({ name: row.name, event }, facts, row.id);
    const tick = { schedule: row.name, lastMs: row.tickedToMs, tickMs, nextMs: tickMs + 1_000 };
    return emitTick(db.pool, schema, held, { ...tick, ...(trigger && { trigger }) }, events);
  }

  const emitted = async () =>
    (
      await db.query<{ tick: string }>(
        `select headers ->> 'schedule-tick' as tick from postcommit.outbox_events order by seq`,
      )
    ).map(({ tick }) => Date.parse(tick));

  const second = (ms: number) => Math.floor(ms / 1_000) * 1_000;

  test('1,000 ticks while two leaders change places: each once, none missing', { timeout: 120_000 }, async () => {
    const random = seededRandom();
    await setBack(1_000);
    const { nowMs, row } = await read();
    const cron = new CronExpression(schedule.cron, schedule.timeZone);
    const policy = { catchUp: 'all', catchUpMax: 1_000, missedAfterMs: 1_000 } as const;
    const expected = dueTicks(cron, row.tickedToMs, nowMs, policy).ticks;
    expect(expected.length).toBeGreaterThanOrEqual(999);
    const lastMs = expected.at(-1) as number;
    const counts: Record<string, number> = {};
    let swaps = 0;
    let done = false;

    /** Believes to lead under what it last took, and looks at the row only now and then. */
    async function contend(n: number): Promise<void> {
      let held = await take(n);
      while (!done) {
        const { row } = await read();
        const due = expected.filter((tick) => tick > row.tickedToMs);
        if (due.length === 0) break;
        for (const tick of due.slice(0, random.integer(1, 8))) {
          const result = await emit(held, row, tick);
          counts[result] = (counts[result] ?? 0) + 1;
          if (result === 'emitted') row.tickedToMs = tick;
          if (result === 'fenced' || random.chance(0.1)) {
            held = await take(n);
            swaps++;
          }
          if (result !== 'emitted') break; // The next tick would skip this one.
        }
      }
    }
    await Promise.all([contend(0), contend(1)]).finally(() => {
      done = true;
    });

    expect(await emitted()).toEqual(expected);
    expect((await read()).row.tickedToMs).toBe(lastMs);
    expect(swaps).toBeGreaterThan(50);
    expect(counts.emitted).toBe(expected.length);
    expect(counts.stale).toBeGreaterThan(10);
    expect(counts.fenced).toBeGreaterThan(10);
    const [{ queued }] = await db.query('select count(*)::integer as queued from postcommit.outbox_queue');
    expect(queued).toBe(expected.length);
  });

  test('a relay that was deposed emits nothing, however up to date its row is', async () => {
    await setBack(10);
    const old = await take(0);
    await take(1);
    const { nowMs, row } = await read();
    expect(await emit(old, row, second(nowMs))).toBe('fenced');
    expect(await emitted()).toEqual([]);
    expect((await read()).row.tickedToMs).toBe(row.tickedToMs);
  });

  test('the leader emits nothing from a row that has changed', async () => {
    await setBack(10);
    const held = await take(0);
    const { nowMs, row } = await read();
    const tick = second(nowMs);
    expect(await emit(held, { ...row }, tick)).toBe('emitted');
    expect(await emit(held, { ...row }, tick)).toBe('stale');
    expect(await emit(held, { ...row }, tick - 1_000)).toBe('stale');
    expect(await emitted()).toEqual([tick]);
  });

  test('the clock of the database decides whether a tick is due', async () => {
    const held = await take(0);
    const { nowMs, row } = await read();
    expect(await emit(held, row, nowMs + 60_000)).toBe('early');
    expect(await emitted()).toEqual([]);
  });

  test('a tick whose event is in the log already is not emitted again', async () => {
    await setBack(10);
    const held = await take(0);
    const { nowMs, row } = await read();
    const tick = second(nowMs);
    await emit(held, row, tick);
    await setBack(10); // As a restored table would be.
    expect(await emit(held, (await read()).row, tick)).toBe('emitted');
    expect(await emitted()).toEqual([tick]);
  });

  test('a paused schedule emits triggers only; resumed, it skips the ticks of that time', async () => {
    const { admin } = createOutbox({ db: fromPg(db.pool) });
    await setBack(10);
    const held = await take(0);
    const { nowMs, row } = await read();
    await admin.schedules.pause(schedule.name);
    expect(await emit(held, row, second(nowMs))).toBe('paused');
    await admin.schedules.trigger(schedule.name, { waitMs: 0 });
    expect(await emit(held, row, nowMs, 2)).toBe('stale');
    expect(await emit(held, row, nowMs, 1)).toBe('emitted');
    expect(await emit(held, row, nowMs, 1)).toBe('stale');
    expect(await admin.schedules.list()).toMatchObject([{ state: 'paused', emitted: 1, triggersWaiting: 0 }]);
    await admin.schedules.resume(schedule.name);
    expect(await emit(held, row, second(nowMs))).toBe('stale');
    const resumed = (await read()).row;
    expect(resumed.tickedToMs).toBeGreaterThanOrEqual(nowMs);
    await db.query('delete from postcommit.outbox_schedules');
    expect(await emit(held, row, second(nowMs))).toBe('gone');
  });

  test('an emitter that holds the key delays a tick for two seconds, and no renewal of the duty', {
    timeout: 20_000,
  }, async () => {
    await setBack(10);
    const held = await take(0);
    const { nowMs, row } = await read();
    const client = await db.pool.connect();
    await client.query('begin');
    await client.query(`select postcommit.emit('other', 'schedule', $1, 'null')`, [schedule.name]);
    const blocked = emit(held, row, second(nowMs)).catch((error: { code: string }) => error.code);
    const renewed = await takeDuty(db.pool, schema, { name: duty, owner: held.owner }, 3_600_000);
    expect(renewed).toBe(held.epoch);
    expect(await blocked).toBe('55P03');
    await client.query('rollback');
    client.release();
    expect(await emit(held, row, second(nowMs))).toBe('emitted');
  });

  describe('a declaration', () => {
    const declare = (n: number, cron: string) =>
      declareSchedules(db.pool, schema, { token: tokens[n] as string, name: 'ab'.charAt(n) }, [{ ...schedule, cron }]);
    const cronOf = async () => (await read()).row.cron;

    test('of another expression waits until no live relay has the one in force', async () => {
      const { admin } = createOutbox({ db: fromPg(db.pool) });
      await setBack(10);
      const before = (await read()).row;
      await declare(1, '0 3 * * *');
      expect(await cronOf()).toBe(schedule.cron);
      expect((await read()).row.tickedToMs).toBe(before.tickedToMs);
      const [info] = await admin.schedules.list();
      expect(info?.declarations.map(({ relay, cron }) => [relay, cron])).toEqual([
        ['a', '* * * * * *'],
        ['b', '0 3 * * *'],
      ]);
      const { findings } = await admin.doctor({ only: ['schedules'] });
      expect(findings[0]).toMatchObject({ severity: 'warning', what: expect.stringContaining('relay b declares 0 3') });
      await db.query(`update postcommit.outbox_relays set ended_at = now(), ended_as = 'lost' where token = $1`, [
        tokens[0],
      ]);
      await declare(1, '0 3 * * *');
      expect(await cronOf()).toBe('0 3 * * *');
      const after = await read();
      expect(after.row.tickedToMs).toBeGreaterThan(after.nowMs - 5_000);
      expect(after.row.id).toBe(before.id);
      expect((await admin.schedules.list())[0]).toMatchObject({ declaredBy: 'b', declarations: [{ relay: 'b' }] });
    });

    test('of a schedule that is known changes nothing, and its past is kept', async () => {
      await setBack(10);
      const before = (await read()).row;
      await declare(1, schedule.cron);
      await declareSchedules(db.pool, schema, { token: tokens[1] as string, name: 'b' }, []);
      expect((await read()).row).toEqual(before);
    });
  });

  test('a schedule that a live relay has cannot be removed', async () => {
    const { admin } = createOutbox({ db: fromPg(db.pool) });
    await expect(admin.schedules.remove(schedule.name)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_SCHEDULE_IN_USE' });
    await db.query(`update postcommit.outbox_relays set ended_at = now(), ended_as = 'stopped'`);
    expect((await admin.doctor({ only: ['schedules'] })).findings[0]?.what).toBe(
      'no live relay has the schedule every-second',
    );
    await admin.schedules.remove(schedule.name);
    expect(await admin.schedules.list()).toEqual([]);
    await expect(admin.schedules.remove(schedule.name)).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_NO_SUCH_SCHEDULE',
    });
  });

  test('a hundred triggers wait for a relay, and no more', async () => {
    const { admin } = createOutbox({ db: fromPg(db.pool) });
    for (let n = 0; n < 100; n++) await admin.schedules.trigger(schedule.name, { waitMs: 0 });
    await expect(admin.schedules.trigger(schedule.name, { waitMs: 0 })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_SCHEDULE_BUSY',
    });
    expect((await admin.schedules.list())[0]).toMatchObject({ triggersWaiting: 100 });
  });
});
