import { duration } from '../format.ts';
import type { ScheduleInfo } from '../outbox/operating/list-schedules.ts';
import type { Output } from './output.ts';
import { instant } from './output.ts';

/** Prints a table of schedules. */
export function printSchedules(output: Output, schedules: readonly ScheduleInfo[], now: Date): void {
  output.table(
    ['SCHEDULE', 'STATE', 'CRON', 'TIME ZONE', 'LAST TICK', 'NEXT TICK', 'EMITTED', 'RELAYS', 'DECLARED BY', 'WHY'],
    schedules.map((schedule) => [
      schedule.name,
      schedule.state,
      schedule.cron,
      schedule.timeZone,
      schedule.lastTickAt ? instant(schedule.lastTickAt) : '-',
      nextTick(schedule, now),
      schedule.emitted.toLocaleString('en-US'),
      String(schedule.declarations.length),
      schedule.declaredBy,
      whyOf(schedule),
    ]),
  );
}

function nextTick({ state, nextTickAt }: ScheduleInfo, now: Date): string {
  if (nextTickAt === undefined || state === 'paused' || state === 'unserved') return '-';
  const waitMs = nextTickAt.getTime() - now.getTime();
  return waitMs > 0 ? `in ${duration(waitMs)}` : 'due';
}

function whyOf({ state, reason, error, cron, timeZone, declarations }: ScheduleInfo): string {
  if (state === 'paused') return reason ?? '-';
  if (state === 'unserved') return 'no live relay has it';
  if (error !== undefined) return error;
  const other = declarations.find((each) => each.cron !== cron || each.timeZone !== timeZone);
  return other ? `relay ${other.relay} declares ${other.cron} (${other.timeZone})` : '-';
}
