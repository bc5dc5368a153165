import { duration, quantity } from '../../format.ts';
import type { MaintenanceInfo } from '../../outbox/operating/list-maintenance.ts';
import type { RelayInfo } from '../../outbox/operating/list-relays.ts';
import type { Judgement } from './finding.ts';
import { ok, warning } from './finding.ts';

/** A relay that has just started, or has just lost its leader, gets that long to take over. */
const graceMs = 120_000;
/** The longest interval that a relay takes is a day. */
const idleMsMax = 26 * 3_600_000;

export function judgeMaintenance(
  { leader, tasks }: MaintenanceInfo,
  relays: readonly RelayInfo[],
  nowMs: number,
): Judgement[] {
  const alive = relays.filter(({ state }) => state === 'alive');
  const found = tasks
    .filter(({ error }) => error !== undefined)
    .map(({ task, error = '', failures }) =>
      warning(
        `the task ${task} failed ${quantity(failures, 'time')} in a row: ${error.slice(0, 200)}`,
        'What it is for is left undone: old events stay, or partitions are missing.',
        /permission denied|must be owner/i.test(error) ? 'postcommit grants --relay <its role>' : 'postcommit status',
      ),
    );
  const lastRan = Math.max(0, ...tasks.map(({ ranAt }) => ranAt.getTime()));
  const consequence = 'Nothing old is removed and no partition is made: tables grow without end.';
  if (leader === undefined && alive.some(({ startedAt }) => nowMs - startedAt.getTime() > graceMs)) {
    found.push(
      warning(
        `${quantity(alive.length, 'relay')} alive, and none does maintenance`,
        consequence,
        'start one relay without `maintenance: false`, or run `postcommit prune` regularly',
      ),
    );
  } else if (leader !== undefined && nowMs - Math.max(lastRan, leader.since.getTime()) > idleMsMax) {
    const what = `the relay ${leader.name} (host ${leader.host}, pid ${leader.pid}) leads since ${duration(nowMs - leader.since.getTime())}, and its last task ran ${duration(nowMs - lastRan)} ago`;
    found.push(warning(what, consequence, 'restart it, and look at its log'));
  }
  if (found.length > 0) return found;
  const last = lastRan === 0 ? 'nothing was done yet' : `last run ${duration(Math.max(0, nowMs - lastRan))} ago`;
  return [ok(leader === undefined ? last : `the relay ${leader.name} does it, ${last}`)];
}
