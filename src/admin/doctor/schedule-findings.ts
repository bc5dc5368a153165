import { quantity, shellOperand } from '../../format.ts';
import type { ScheduleInfo } from '../../outbox/operating/list-schedules.ts';
import type { CheckFinding } from './finding.ts';
import { note, ok, warning } from './finding.ts';

export function scheduleFindings(schedules: readonly ScheduleInfo[]): CheckFinding[] {
  const found = schedules.flatMap((schedule) => [...stateFindings(schedule), ...differenceFindings(schedule)]);
  return found.length > 0 ? found : [ok(quantity(schedules.length, 'schedule'))];
}

function stateFindings({ name, state, error = '', failures, reason, nextTickAt }: ScheduleInfo): CheckFinding[] {
  switch (state) {
    case 'active':
      return [];
    case 'paused':
      return [
        note(
          `the schedule ${name} is paused${reason ? ` (${reason})` : ''}`,
          'Its ticks are skipped.',
          `npx postcommit schedules resume ${shellOperand(name)}`,
        ),
      ];
    case 'unserved':
      return [
        warning(
          `no live relay has the schedule ${name}`,
          'Its ticks are not emitted. Start a relay that has it. If it was removed from the configuration, remove it here too.',
          `npx postcommit schedules remove ${shellOperand(name)}`,
        ),
      ];
    case 'failing':
      return [
        warning(
          `the schedule ${name} failed ${quantity(failures, 'time')} in a row: ${error.slice(0, 200)}`,
          'Its ticks are not emitted. The relay retries.',
          /permission denied|PERMISSION_DENIED|lacks a privilege/i.test(error)
            ? 'npx postcommit grants --emitter <role of the relay> --relay <role of the relay>'
            : 'npx postcommit schedules',
        ),
      ];
    case 'overdue': {
      const since = nextTickAt ? `its tick of ${nextTickAt.toISOString()} was not emitted` : 'no relay has started it';
      return [
        warning(
          `the schedule ${name} is overdue: ${since}`,
          'Relays have it, and none emits its ticks.',
          'read the logs of the relays that have it, and restart them',
        ),
      ];
    }
  }
}

function differenceFindings({ name, cron, timeZone, declarations }: ScheduleInfo): CheckFinding[] {
  const other = declarations.find((each) => each.cron !== cron || each.timeZone !== timeZone);
  if (other === undefined) return [];
  return [
    warning(
      `the schedule ${name} runs at ${cron} (${timeZone}), but the relay ${other.relay} declares ${other.cron} (${other.timeZone})`,
      'The first stays in force while a live relay declares it. During a rolling deployment this is expected.',
      'give all relays the same schedule',
    ),
  ];
}
