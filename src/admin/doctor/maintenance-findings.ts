import { duration, quantity } from '../../format.ts';
import type { MaintenanceInfo } from '../../outbox/operating/list-maintenance.ts';
import type { RelayInfo } from '../../outbox/operating/list-relays.ts';
import type { CheckFinding } from './finding.ts';
import { ok, warning } from './finding.ts';

/** How long relays may take to elect a leader after a start or after the leader ended. */
const graceMs = 120_000;
/** The longest maintenance interval is a day. */
const idleMsMax = 26 * 3_600_000;

export function maintenanceFindings(
  { leader, tasks }: MaintenanceInfo,
  relays: readonly RelayInfo[],
  nowMs: number,
): CheckFinding[] {
  const alive = relays.filter(({ state }) => state === 'alive');
  const found = tasks
    .filter(({ error }) => error !== undefined)
    .map(({ task, error = '', failures }) =>
      warning(
        `the maintenance task ${task} failed ${quantity(failures, 'time')} in a row: ${error.slice(0, 200)}`,
        'Old events are not deleted, or partitions are not created.',
        /permission denied|must be owner/i.test(error)
          ? 'npx postcommit grants --relay <its role>'
          : 'npx postcommit status',
      ),
    );
  const lastRan = Math.max(0, ...tasks.map(({ ranAt }) => ranAt.getTime()));
  const consequence = 'Old events are not deleted and partitions are not created, so tables keep growing.';
  if (leader === undefined && alive.some(({ startedAt }) => nowMs - startedAt.getTime() > graceMs)) {
    found.push(
      warning(
        `no relay does maintenance (${quantity(alive.length, 'relay')} alive)`,
        consequence,
        'start a relay without `maintenance: false`, or run `npx postcommit prune` regularly',
      ),
    );
  } else if (leader !== undefined && nowMs - Math.max(lastRan, leader.since.getTime()) > idleMsMax) {
    const what = `the relay ${leader.name} (host ${leader.host}, pid ${leader.pid}) has done maintenance for ${duration(nowMs - leader.since.getTime())}, but its last task ran ${duration(nowMs - lastRan)} ago`;
    found.push(warning(what, consequence, 'restart it and read its log'));
  }
  if (found.length > 0) return found;
  const last = lastRan === 0 ? 'no task has run yet' : `last run ${duration(Math.max(0, nowMs - lastRan))} ago`;
  return [ok(leader === undefined ? last : `done by the relay ${leader.name}, ${last}`)];
}
