import { quantity } from '../../format.ts';
import type { UnqueuedFacts } from '../../outbox/examining/examine-unqueued.ts';
import type { CheckFinding } from './finding.ts';
import { critical, ok } from './finding.ts';

export function unqueuedFindings({ unqueued, exact, complete }: UnqueuedFacts): CheckFinding[] {
  const where = complete ? 'in the log' : 'in a sample of the log';
  if (unqueued === 0) return [ok(`every event ${where} is queued, delivered or a dead letter`)];
  const what = `${exact ? '' : 'at least '}${quantity(unqueued, 'event')} ${where} ${unqueued === 1 ? 'was' : 'were'} never queued or delivered`;
  const consequence = 'No relay delivers them, and retention does not delete them.';
  return [critical(what, consequence, 'npx postcommit requeue-unqueued')];
}
