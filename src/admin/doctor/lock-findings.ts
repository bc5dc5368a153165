import { duration, quantity } from '../../format.ts';
import type { AdvisoryLockHolder, OutboxLock } from '../../outbox/examining/examine-locks.ts';
import type { CheckFinding, Severity } from './finding.ts';
import { ok, severityOver } from './finding.ts';
import { commandToEnd, describeHolder } from './holder-description.ts';
import type { DoctorLimits } from './limits.ts';

/** Transactions that emit for the same aggregate wait for each other, normally for less than this. */
const turnMsMax = 1_000;

const locks: Record<OutboxLock, { name: string; consequence: string }> = {
  gate: { name: 'an emit gate', consequence: 'Transactions that emit may wait for it.' },
  key: { name: 'an aggregate key', consequence: 'Transactions that emit for the aggregate wait for it.' },
  id: { name: 'an event id', consequence: 'Transactions that call emitOnce with this id wait for it.' },
  prune: { name: 'pruning', consequence: 'No event is pruned, and replay and requeue-unqueued fail.' },
  partitions: { name: 'partitions', consequence: 'No partition is created, opened or dropped.' },
  unshelve: {
    name: 'unshelving',
    consequence: 'Events stay on the shelf although their destination is up, and forget, cancel and make-due fail.',
  },
  queue: { name: 'a queue', consequence: 'Relays may claim nothing from the queue, and it cannot be paused.' },
  relay: {
    name: 'a relay',
    consequence: 'If the relay crashes, its events wait until its lease ends.',
  },
  migrate: { name: 'migrations', consequence: 'Migrations wait for it and fail after five minutes.' },
};

/** Sessions that hold an advisory lock of the outbox for longer than the outbox itself ever does. */
export function lockFindings(
  holders: readonly AdvisoryLockHolder[],
  limits: Pick<DoctorLimits, 'lockMsMax'>,
): CheckFinding[] {
  const found = holders.flatMap((holder) => {
    const severity = severityOf(holder, limits);
    if (severity === 'ok') return [];
    const { ageMs, waiters, waitedMs } = holder;
    const names = holder.locks.map((lock) => locks[lock].name).join(' and ');
    const holds = ageMs === null ? 'holds' : 'has held';
    const age = ageMs === null ? '' : ` for ${duration(ageMs)}`;
    const waits =
      waiters === 0 ? '' : `; ${quantity(waiters, 'session')} waiting for it, up to ${duration(waitedMs ?? 0)}`;
    return [
      {
        severity,
        what: `${describeHolder(holder)} ${holds} the advisory lock of ${names}${age}${waits}`,
        consequence: holder.locks.map((lock) => locks[lock].consequence).join(' '),
        fix: commandToEnd(holder),
      },
    ];
  });
  return found.length > 0 ? found : [ok('no session holds an advisory lock of the outbox for too long')];
}

function severityOf(
  { locks, ageMs, waitedMs }: AdvisoryLockHolder,
  { lockMsMax }: Pick<DoctorLimits, 'lockMsMax'>,
): Severity {
  const over = severityOver(Math.max(ageMs ?? 0, waitedMs ?? 0), lockMsMax);
  if (over !== 'ok') return over;
  if ((waitedMs ?? 0) > turnMsMax) return 'warning';
  // Every transaction that has emitted holds a gate. Other locks are normally held for milliseconds.
  return ageMs === null && locks.some((lock) => lock !== 'gate' && lock !== 'key' && lock !== 'id') ? 'note' : 'ok';
}
