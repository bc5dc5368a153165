import type { EventCatalogue } from '../../catalogue/catalogue.ts';
import { PostcommitError } from '../../errors.ts';
import { shown } from '../../format.ts';
import { unknownOption } from '../../suggest.ts';
import type { CatchUp, CatchUpPolicy } from './cron.ts';
import { CronExpression } from './cron.ts';
import type { EventOfTick } from './scheduled-event.ts';
import { eventsOfTick } from './scheduled-event.ts';

export interface ScheduleOptions {
  /**
   * When to emit: five fields (minute, hour, day of month, month, day of week), or six with seconds first. Names (`MON`), ranges,
   * steps, `L`, `W`, `#` and `@daily` work as in croner.
   */
  cron: string;
  /** IANA time zone of `cron`, e.g. `Europe/Berlin`. Default `UTC`, whatever the zone of the host is. */
  timeZone?: string;
  /**
   * The event, or a function that returns it, or a list of up to 100. The function is also called when the relay is created, to
   * check the event. It must not have side effects: a tick may be computed by several relays and is emitted by one.
   */
  event: EventOfTick;
  /**
   * What happens to missed ticks, those that no relay could emit for longer than `missedAfterMs`. `none`: they are skipped.
   * `latest`: the last one is emitted. `all`: the last `catchUpMax` are emitted, oldest first. Default `latest`.
   */
  catchUp?: CatchUp;
  /** How many missed ticks `catchUp: 'all'` emits, from 1 to 1,000. Default 100. */
  catchUpMax?: number;
  /**
   * Up to this late a tick is not missed, and emitted whatever `catchUp` is. It should be longer than it takes another relay to
   * take over (`leaseMs`). From 1,000 to 3,600,000. Default 60,000.
   */
  missedAfterMs?: number;
}

/** Schedules by name: 1 to 100 letters, digits and `.`, `_`, `:`, `-`. */
export type Schedules = Readonly<Record<string, ScheduleOptions>>;

export interface Schedule extends CatchUpPolicy {
  name: string;
  cron: string;
  timeZone: string;
  event: EventOfTick;
  /** The catalogue of the relay. */
  events: EventCatalogue | undefined;
}

const schedulesMax = 1_000;
const optionNames: readonly string[] = ['cron', 'timeZone', 'event', 'catchUp', 'catchUpMax', 'missedAfterMs'];
const catchUps: readonly CatchUp[] = ['none', 'latest', 'all'];

/** Fills in the defaults and checks every schedule, with the event of a tick. */
export function resolveSchedules(given: unknown = {}, events?: EventCatalogue): Schedule[] {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw bad('schedules must be an object of schedules by name.');
  }
  const entries = Object.entries(given as Record<string, unknown>);
  if (entries.length > schedulesMax) throw bad(`A relay has at most ${schedulesMax} schedules. Got ${entries.length}.`);
  return entries.map(([name, options]) => resolveSchedule(name, options, events));
}

function resolveSchedule(name: string, given: unknown, events: EventCatalogue | undefined): Schedule {
  if (!/^[A-Za-z0-9._:-]{1,100}$/.test(name)) {
    throw bad(
      `The names of schedules have 1 to 100 letters, digits and . _ : - only. Got ${JSON.stringify(name.slice(0, 120))}.`,
    );
  }
  const refuse = (detail: string, cause?: unknown) => bad(`schedules.${name}: ${detail}`, cause);
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw refuse("It must be an object, e.g. { cron: '0 3 * * *', event: { type: 'report.requested', payload: {} } }.");
  }
  const unknown = unknownOption(given, optionNames);
  if (unknown !== undefined) throw refuse(unknown);
  const { cron, timeZone = 'UTC', event, catchUp = 'latest', ...limits } = given as ScheduleOptions;
  if (!catchUps.includes(catchUp))
    throw refuse(`catchUp must be one of ${catchUps.join(', ')}. Got ${shown(catchUp)}.`);
  const whole = (option: 'catchUpMax' | 'missedAfterMs', fallback: number, min: number, max: number) => {
    const value = limits[option] ?? fallback;
    if (Number.isInteger(value) && value >= min && value <= max) return value;
    throw refuse(`${option} must be a whole number from ${min} to ${max}. Got ${shown(value)}.`);
  };
  const schedule: Schedule = {
    name,
    cron: checkCron(cron, timeZone, refuse),
    timeZone,
    event,
    events,
    catchUp,
    catchUpMax: whole('catchUpMax', 100, 1, 1_000),
    missedAfterMs: whole('missedAfterMs', 60_000, 1_000, 3_600_000),
  };
  eventsOfTick(schedule, { schedule: name, at: new Date(), triggered: false });
  return schedule;
}

type Refuse = (detail: string, cause?: unknown) => PostcommitError;

function checkCron(cron: unknown, timeZone: unknown, refuse: Refuse): string {
  if (typeof timeZone !== 'string' || !isTimeZone(timeZone)) {
    const got = JSON.stringify(timeZone) ?? String(timeZone);
    throw refuse(`timeZone must be a time zone of the IANA database, e.g. Europe/Berlin. Got ${got.slice(0, 120)}.`);
  }
  if (typeof cron !== 'string' || cron.length > 200) {
    throw refuse("cron must be a cron expression of at most 200 characters, e.g. '0 3 * * *'.");
  }
  let next: number | undefined;
  try {
    next = new CronExpression(cron, timeZone).next(Date.now());
  } catch (error) {
    const why = String((error as Error).message)
      .replace(/^Cron\w+: /, '')
      // croner's text is about all of its modes.
      .replace(/exactly five.* parts are required/, 'five fields are required, or six with seconds first');
    throw refuse(`The cron expression ${JSON.stringify(cron)} is invalid: ${why}`, error);
  }
  if (next === undefined) throw refuse(`The cron expression ${JSON.stringify(cron)} never fires.`);
  return cron;
}

function isTimeZone(timeZone: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone });
    return timeZone !== '';
  } catch {
    return false;
  }
}

function bad(detail: string, cause?: unknown): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_SCHEDULE', detail, { cause });
}
