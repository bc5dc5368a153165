import { Cron } from 'croner';

/** A cron expression in a time zone: the one place that uses croner, which decides what happens when clocks change. */
export class CronExpression {
  readonly #cron: Cron;

  /** Throws if the expression or the time zone is invalid. */
  constructor(cron: string, timeZone: string) {
    // croner would find out about the time zone with the first tick only.
    new Intl.DateTimeFormat('en', { timeZone });
    this.#cron = new Cron(cron, { timezone: timeZone, mode: '5-or-6-parts', paused: true });
    if (this.#cron.getOnce() !== null) throw new TypeError('it is a date, and would fire once.');
  }

  /** The first tick after a time; `undefined` if there is none any more. */
  next(afterMs: number): number | undefined {
    return this.#cron.nextRun(new Date(afterMs))?.getTime();
  }

  /** The last ticks after one time and up to another, oldest first, at most `max`. */
  latest(afterMs: number, untilMs: number, max: number): number[] {
    // croner looks before the second that it is given, so that of `until` needs the next one.
    const reference = new Date(Math.floor(untilMs / 1_000) * 1_000 + 1_000);
    const ticks = this.#cron.previousRuns(max, reference).map((tick) => tick.getTime());
    return ticks.filter((tick) => tick > afterMs && tick <= untilMs).reverse();
  }
}

export type CatchUp = 'none' | 'latest' | 'all';

export interface CatchUpPolicy {
  catchUp: CatchUp;
  catchUpMax: number;
  missedAfterMs: number;
}

export interface DueTicks {
  /** To be emitted, oldest first. */
  ticks: number[];
  /** If there are none: the last missed tick, up to which all are skipped. */
  skipTo?: number;
}

/** Ticks of one pass that are not missed. What is left over is due in the next one. */
const onTimeMax = 1_000;

/** The ticks after `tickedToMs` and up to `nowMs` that the policy lets through. */
export function dueTicks(cron: CronExpression, tickedToMs: number, nowMs: number, policy: CatchUpPolicy): DueTicks {
  const first = cron.next(tickedToMs);
  if (first === undefined || first > nowMs) return { ticks: [] };
  // A tick at this time or before is missed.
  const missedMs = nowMs - policy.missedAfterMs - 1;
  const onTime: number[] = [];
  let tick = first > missedMs ? first : cron.next(missedMs);
  while (tick !== undefined && tick <= nowMs && onTime.length < onTimeMax) {
    onTime.push(tick);
    tick = cron.next(tick);
  }
  if (first > missedMs || (onTime.length > 0 && policy.catchUp !== 'all')) return { ticks: onTime };
  const missed = cron.latest(tickedToMs, missedMs, policy.catchUp === 'all' ? policy.catchUpMax : 1);
  // The first one exists in any case, whatever the search backwards finds.
  if (missed.length === 0) missed.push(first);
  return policy.catchUp === 'none' ? { ticks: [], skipTo: missed[0] as number } : { ticks: [...missed, ...onTime] };
}
