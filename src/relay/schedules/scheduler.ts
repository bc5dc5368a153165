import { createHash } from 'node:crypto';
import type { ServerList } from '../../database/connection-string.ts';
import { codedDatabaseError, isConnectionFailure } from '../../database/database-error.ts';
import type { Executor } from '../../database/executor.ts';
import { notifyInProcess, notifyRelays } from '../../outbox/emitting/notify.ts';
import { declareSchedules } from '../../outbox/maintaining/declare-schedules.ts';
import type { Tick, TickResult } from '../../outbox/maintaining/emit-tick.ts';
import { emitTick } from '../../outbox/maintaining/emit-tick.ts';
import type { ScheduleRow } from '../../outbox/maintaining/read-schedules.ts';
import { readSchedules } from '../../outbox/maintaining/read-schedules.ts';
import { recordNextTick, recordScheduleFailure } from '../../outbox/maintaining/record-schedule.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import { DutyConnection } from '../maintenance/duty-connection.ts';
import { endDuty } from '../maintenance/end-duty.ts';
import type { OwnedDuty } from '../maintenance/leader.ts';
import { Leader } from '../maintenance/leader.ts';
import type { Service } from '../service/service.ts';
import type { Lifecycle } from '../telemetry/lifecycle.ts';
import { CronExpression, dueTicks } from './cron.ts';
import type { Schedule } from './schedule-options.ts';
import { eventsOfTick } from './scheduled-event.ts';

export interface SchedulerOptions {
  schema: string;
  relay: string;
  servers: ServerList;
  schedules: readonly Schedule[];
  /** Used only to renew the duty. */
  control: Executor;
  /** Declares the schedules, even in relays that do not lead. */
  db: Executor;
  leaseMs: number;
  token: () => string;
  lifecycle: Lifecycle;
  logger: Logger;
}

/** The longest time between two passes: how soon a trigger or a resumed schedule is noticed. */
const passMsMax = 1_000;
/** The least, for a timer that fires too early by the clock of the database. */
const passMsMin = 2;
/** A schedule that fails is retried after 1, 2, 4, ... seconds, at most this. */
const retryMsMax = 60_000;
/** Above the lock_timeout of emit_tick, below what a connection that is dead may cost. */
const queryTimeoutMs = 10_000;

/**
 * Emits the events of schedules. Of all relays that have the same schedules, one leads (`leader.ts`) and emits each tick when it is
 * due. It reads the schedules and the clock of the database once a second, and when a tick is due; the clock of this process
 * decides nothing. `emit_tick` emits a tick and moves the schedule past it in one transaction, fenced by the duty's epoch and
 * by the row, so that no tick is emitted twice, whichever relays believe to lead.
 *
 * The duty belongs to a set of schedules, not to maintenance: a relay with other schedules, or with none, must not lead
 * instead, because only code that has a schedule can make its events. Where sets overlap, the row decides.
 *
 * A schedule that fails does not delay the others.
 */
export class Scheduler implements Service {
  readonly #options: SchedulerOptions;
  readonly #leader: Leader;
  readonly #log = new SparseLog(60_000);
  readonly #crons = new Map<string, CronExpression>();
  readonly #failing = new Map<string, { failures: number; retryAt: number }>();
  /** The token under which the schedules were declared. */
  #declaredBy = '';
  readonly #connection: DutyConnection;
  #leading = false;
  #running = false;
  #stopped = false;
  #timer: NodeJS.Timeout | undefined;
  #passing: Promise<unknown> | undefined;
  #declaring: Promise<void> | undefined;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#connection = new DutyConnection({ ...options, duty: 'schedules', queryTimeoutMs });
    const { relay, schema, control: db, leaseMs, token, logger } = options;
    this.#leader = new Leader({
      name: dutyOf(options.schedules),
      schema,
      db,
      leaseMs,
      token,
      logger,
      onTaken: (epoch) => {
        logger.info({ relay, epoch, schedules: options.schedules.length }, 'elected leader of schedules');
        this.#leading = true;
        this.#passAfter(0);
      },
      onLost: (epoch) => {
        this.#leading = false;
        clearTimeout(this.#timer);
        if (!this.#passing) void this.#connection.close();
        logger.info({ relay, epoch }, 'another relay leads schedules');
      },
    });
  }

  /** Leads from now on if no other relay does. */
  async start(): Promise<void> {
    if (this.#running || this.#stopped) return;
    this.#running = true;
    void this.beat();
  }

  /** With each heartbeat. Never fails. */
  beat(): Promise<void> {
    if (!this.#running) return Promise.resolve();
    // Not awaited: it uses another connection than the leader.
    this.#declaring ??= this.#declare().finally(() => {
      this.#declaring = undefined;
    });
    return this.#leader.beat();
  }

  /** One pass, if no other relay leads: for a relay that is only ever run once. */
  async once(): Promise<void> {
    await this.#declare();
    await this.#leader.beat();
    this.#passing = this.#pass();
    await this.#passing;
  }

  /** Stops after the current tick, and leaves the duty to another relay. */
  async stop(): Promise<void> {
    this.#running = false;
    this.#stopped = true;
    clearTimeout(this.#timer);
    await endDuty(Promise.all([this.#passing, this.#declaring]), this.#connection, this.#leader);
  }

  /**
   * Once per registration, because the database ignores what ended relays declared, and again after a pass that found another
   * expression. Never fails.
   */
  async #declare(): Promise<void> {
    const { db, schema, relay, schedules, token } = this.#options;
    const now = token();
    if (now === '' || now === this.#declaredBy || this.#stopped) return;
    this.#declaredBy = now;
    try {
      await declareSchedules(db, schema, { token: now, name: relay }, schedules);
    } catch (error) {
      this.#declaredBy = ''; // With the next heartbeat.
      this.#warn('declare', { error: errorText(codedDatabaseError(error)) }, 'cannot declare schedules, retrying');
    }
  }

  #passAfter(afterMs: number): void {
    if (!this.#running || this.#passing) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#passing = this.#pass().then((nextMs) => {
        this.#passing = undefined;
        if (this.#leading) this.#passAfter(nextMs);
        else void this.#connection.close();
      });
    }, afterMs);
  }

  /** Emits what is due. Returns after how many milliseconds to look again. Never fails. */
  async #pass(): Promise<number> {
    const { schema, schedules } = this.#options;
    let nextMs = passMsMax;
    let emitted = 0;
    try {
      if (!this.#leader.duty || this.#stopped) return passMsMax; // Overdue, or lost; the next heartbeat decides.
      const link = await this.#connection.open();
      const names = schedules.map(({ name }) => name);
      const { nowMs, schedules: rows } = await readSchedules(link, schema, names);
      const readAt = performance.now();
      const byName = new Map(rows.map((row) => [row.name, row]));
      for (const schedule of schedules) {
        const row = byName.get(schedule.name);
        // Removed, or another relay declares a different expression and may have ended. The next heartbeat declares all again: a
        // declaration writes the row of every schedule, and a pass comes once a second.
        if (row?.cron !== schedule.cron || row.timeZone !== schedule.timeZone) this.#declaredBy = '';
        if (!row) continue;
        const pass = { link, row, nowMs, readAt };
        nextMs = Math.min(nextMs, await this.#advance(schedule, pass, () => emitted++));
      }
    } catch (error) {
      this.#warn('pass', { error: errorText(codedDatabaseError(error)) }, 'cannot emit scheduled events, retrying');
    }
    if (emitted > 0) await this.#notify();
    return Math.max(passMsMin, nextMs);
  }

  /** Emits what is due of one schedule. Returns after how many milliseconds to look again. Fails when the connection does. */
  async #advance(schedule: Schedule, pass: Pass, onEmitted: () => void): Promise<number> {
    const { link, row, nowMs, readAt } = pass;
    const failing = this.#failing.get(schedule.name);
    if (failing && performance.now() < failing.retryAt) return passMsMax;
    try {
      const cron = this.#cronOf(row);
      for (let number = row.triggersEmitted + 1; number <= row.triggersRequested; number++) {
        const result = await this.#emit(schedule, pass, { tickMs: nowMs, nextMs: undefined, trigger: number });
        if (result !== 'emitted') return passMsMin;
        onEmitted();
      }
      if (row.paused) return passMsMax;
      const { ticks, skipTo } = dueTicks(cron, row.tickedToMs, nowMs, schedule);
      for (const tickMs of skipTo === undefined ? ticks : [skipTo]) {
        const skipped = skipTo !== undefined;
        const result = await this.#emit(schedule, pass, { tickMs, nextMs: cron.next(tickMs), skipped });
        if (result !== 'emitted') return passMsMin;
        if (!skipped) onEmitted();
        row.tickedToMs = tickMs;
        row.nextTickMs = cron.next(tickMs) ?? null;
      }
      const next = cron.next(row.tickedToMs);
      if (next === undefined) return passMsMax;
      if (row.nextTickMs !== next) {
        await recordNextTick(link, this.#options.schema, {
          schedule: row.name,
          tickedToMs: row.tickedToMs,
          nextMs: next,
        });
      }
      this.#failing.delete(schedule.name);
      return next - (nowMs + performance.now() - readAt);
    } catch (error) {
      if (isConnectionFailure(error) || this.#stopped) throw error;
      await this.#fail(link, schedule.name, errorText(codedDatabaseError(error)));
      return passMsMax;
    }
  }

  async #emit(schedule: Schedule, { link, row }: Pass, tick: DueTick): Promise<TickResult> {
    const duty: OwnedDuty | undefined = this.#leader.duty;
    if (!duty || this.#stopped) return 'fenced';
    const { tickMs, nextMs, trigger, skipped = false } = tick;
    const facts = { schedule: row.name, at: new Date(tickMs), triggered: trigger !== undefined };
    const events = skipped ? [] : eventsOfTick(schedule, facts, row.id);
    const given: Tick = { schedule: row.name, lastMs: row.tickedToMs, tickMs, nextMs, ...(trigger && { trigger }) };
    const result = await emitTick(link, this.#options.schema, duty, given, events);
    const { lifecycle, logger } = this.#options;
    const log = { schedule: row.name, tickAt: facts.at.toISOString(), triggered: facts.triggered };
    if (result !== 'emitted') logger.debug({ ...log, result }, 'tick not emitted');
    else if (skipped) logger.warn({ schedule: row.name, to: log.tickAt }, 'missed ticks skipped');
    else {
      const eventIds = events.map(({ id }) => id);
      lifecycle.tell('scheduleEmitted', { schedule: row.name, tickAt: facts.at, triggered: facts.triggered, eventIds });
      logger.debug({ ...log, events: eventIds.length }, 'tick emitted');
    }
    return result;
  }

  async #fail(link: Executor, name: string, error: string): Promise<void> {
    const failures = (this.#failing.get(name)?.failures ?? 0) + 1;
    const retryMs = Math.min(retryMsMax, 1_000 * 2 ** Math.min(failures - 1, 10));
    this.#failing.set(name, { failures, retryAt: performance.now() + retryMs });
    this.#options.lifecycle.tell('scheduleFailed', { schedule: name, error });
    this.#warn(`failed:${name}`, { schedule: name, failures, error }, 'schedule failed, retrying');
    await recordScheduleFailure(link, this.#options.schema, name, error);
  }

  /** Of the row, which is in force while another relay declares it: not that of the options. */
  #cronOf({ cron, timeZone }: ScheduleRow): CronExpression {
    const key = `${cron} ${timeZone}`;
    let found = this.#crons.get(key);
    if (!found) {
      if (this.#crons.size > 2 * this.#options.schedules.length) this.#crons.clear();
      found = new CronExpression(cron, timeZone);
      this.#crons.set(key, found);
    }
    return found;
  }

  async #notify(): Promise<void> {
    const { schema } = this.#options;
    notifyInProcess(schema);
    // Relays that miss it poll.
    const { current } = this.#connection;
    if (current) await notifyRelays(current, schema).catch(() => {});
  }

  #warn(kind: string, fields: object, message: string): void {
    if (this.#stopped) return;
    this.#log.say(kind, (suppressed) => this.#options.logger.warn({ ...fields, suppressed }, message));
  }
}

interface Pass {
  link: Executor;
  row: ScheduleRow;
  nowMs: number;
  readAt: number;
}

interface DueTick extends Pick<Tick, 'tickMs' | 'nextMs' | 'trigger'> {
  skipped?: boolean;
}

/** The same for all relays with the same schedules. */
function dutyOf(schedules: readonly Schedule[]): string {
  const names = schedules.map(({ name }) => name).sort();
  return `schedules:${createHash('sha256').update(names.join(' ')).digest('hex').slice(0, 16)}`;
}
