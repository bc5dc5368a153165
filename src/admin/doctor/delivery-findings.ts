import { duration, quantity, shellOperand } from '../../format.ts';
import type { RowCounts } from '../../outbox/operating/count.ts';
import type { DestinationInfo } from '../../outbox/operating/list-destinations.ts';
import type { CheckFinding } from './finding.ts';
import { note, ok, severityOver, warning } from './finding.ts';
import type { DoctorLimits } from './limits.ts';

export function backlogFindings(counts: RowCounts, limits: Pick<DoctorLimits, 'oldestPendingMsMax'>): CheckFinding[] {
  const { pending, waiting, shelved, oldestPendingMs, exact } = counts;
  const amount = `${exact.pending ? '' : 'about '}${quantity(pending, 'pending event')}`;
  if (oldestPendingMs === null) return [ok(`${amount}, none due`)];
  const what = `the oldest undelivered event has been due for ${duration(oldestPendingMs)} (${amount}, ${waiting} not due yet, ${shelved} shelved)`;
  const severity = severityOver(oldestPendingMs, limits.oldestPendingMsMax);
  if (severity === 'ok') return [ok(what)];
  const consequence = 'Consumers have outdated data.';
  return [{ severity, what, consequence, fix: 'npx postcommit events --status pending --order oldest --limit 10' }];
}

export function deadLetterFindings({ failed, blocked, exact }: RowCounts): CheckFinding[] {
  const found: CheckFinding[] = [];
  if (failed > 0) {
    const what = `${exact.failed ? '' : 'about '}${quantity(failed, 'unresolved dead letter')}`;
    found.push(
      warning(what, 'These events are not delivered until an operator retries them.', 'npx postcommit dead list'),
    );
  }
  if (blocked > 0) {
    const what = `${quantity(blocked, 'aggregate')} blocked by a dead letter`;
    const consequence = 'Later events of the aggregate wait until an operator retries or discards the dead letter.';
    found.push(warning(what, consequence, 'npx postcommit dead list'));
  }
  return found.length > 0 ? found : [ok('no dead letters')];
}

/** `relaysAlive`: if no relay is alive, no destination is reported as missing from the relays. */
export function destinationFindings(destinations: readonly DestinationInfo[], relaysAlive: number): CheckFinding[] {
  const found = destinations.flatMap((destination): CheckFinding[] => {
    const { name, state, waiting, relays, error, reason } = destination;
    const wait = `${quantity(waiting, 'event')} ${waiting === 1 ? 'waits' : 'wait'} for it`;
    if (relays === 0 && relaysAlive > 0) {
      if (waiting === 0) return [];
      const consequence = 'They wait until a relay that has it starts. If the destination was removed, forget it.';
      return [
        warning(
          `no live relay has the destination ${name}, and ${wait}`,
          consequence,
          `npx postcommit forget ${shellOperand(name)}`,
        ),
      ];
    }
    if (state === 'down') {
      const what = `the destination ${name} is down${error ? ` (${error.slice(0, 200)})` : ''}, ${wait}`;
      return [
        warning(
          what,
          'Relays probe it and send the events when it is up. No attempt is counted.',
          'npx postcommit destinations',
        ),
      ];
    }
    if (state !== 'paused') return [];
    const what = `the destination ${name} is paused${reason ? ` (${reason.slice(0, 200)})` : ''}, ${wait}`;
    return [
      note(
        what,
        'Relays send nothing to it until an operator resumes it.',
        `npx postcommit destinations resume ${shellOperand(name)}`,
      ),
    ];
  });
  return found.length > 0 ? found : [ok(`${quantity(destinations.length, 'destination')}, none down or paused`)];
}
