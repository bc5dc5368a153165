import { duration, quantity } from '../../format.ts';
import type { RowCounts } from '../../outbox/operating/count.ts';
import type { DestinationInfo } from '../../outbox/operating/list-destinations.ts';
import type { Judgement } from './finding.ts';
import { note, ok, severityOver, warning } from './finding.ts';
import type { DoctorLimits } from './limits.ts';

export function judgeBacklog(counts: RowCounts, limits: Pick<DoctorLimits, 'oldestPendingMs'>): Judgement[] {
  const { pending, waiting, shelved, oldestPendingMs, exact } = counts;
  const amount = `${exact.pending ? '' : 'about '}${quantity(pending, 'pending event')}`;
  if (oldestPendingMs === null) return [ok(`${amount}, nothing is due`)];
  const what = `the oldest undelivered event has been due for ${duration(oldestPendingMs)} (${amount}, ${waiting} not due yet, ${shelved} shelved)`;
  const severity = severityOver(oldestPendingMs, limits.oldestPendingMs);
  if (severity === 'ok') return [ok(what)];
  const consequence = 'Consumers work with what was true then.';
  return [{ severity, what, consequence, fix: 'postcommit events --status pending --order oldest --limit 10' }];
}

export function judgeDeadLetters({ failed, blocked, exact }: RowCounts): Judgement[] {
  const found: Judgement[] = [];
  if (failed > 0) {
    const what = `${exact.failed ? '' : 'about '}${quantity(failed, 'dead letter')} to be decided on`;
    found.push(
      warning(what, 'Nobody gets these events until somebody retries or discards them.', 'postcommit dead list'),
    );
  }
  if (blocked > 0) {
    const what = `${quantity(blocked, 'aggregate')} held back by a dead letter`;
    const consequence = 'All later events of theirs wait until it is retried or discarded.';
    found.push(warning(what, consequence, 'postcommit dead list'));
  }
  return found.length > 0 ? found : [ok('no dead letters')];
}

/** `relaysAlive`: without any, that no living relay has a destination says nothing about the destination. */
export function judgeDestinations(destinations: readonly DestinationInfo[], relaysAlive: number): Judgement[] {
  const found = destinations.flatMap((destination): Judgement[] => {
    const { name, state, waiting, relays, error, reason } = destination;
    const wait = `${quantity(waiting, 'event')} ${waiting === 1 ? 'waits' : 'wait'} for it`;
    if (relays === 0 && relaysAlive > 0) {
      if (waiting === 0) return [];
      const consequence =
        'They wait until a relay that has it starts, whatever their age. If it is gone for good, forget it.';
      return [
        warning(`no living relay has the destination ${name}, and ${wait}`, consequence, `postcommit forget ${name}`),
      ];
    }
    if (state === 'down') {
      const what = `the destination ${name} is down${error ? ` (${error.slice(0, 200)})` : ''}, ${wait}`;
      return [
        warning(what, 'They are sent when a probe finds it up again; no attempt is lost.', 'postcommit destinations'),
      ];
    }
    if (state !== 'paused') return [];
    const what = `the destination ${name} is paused${reason ? ` (${reason.slice(0, 200)})` : ''}, ${wait}`;
    return [note(what, 'Nothing is sent to it until somebody resumes it.', `postcommit resume ${name}`)];
  });
  return found.length > 0 ? found : [ok(`${quantity(destinations.length, 'destination')}, none is away`)];
}
