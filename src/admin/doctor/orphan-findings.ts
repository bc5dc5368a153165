import { quantity } from '../../format.ts';
import type { OrphanFacts } from '../../outbox/examining/examine-orphans.ts';
import type { CheckFinding } from './finding.ts';
import { critical, ok } from './finding.ts';

export function orphanFindings({ orphans, exact, complete }: OrphanFacts): CheckFinding[] {
  const where = complete ? 'in the log' : 'in a sample of the log';
  if (orphans === 0) return [ok(`every event ${where} is queued, delivered or a dead letter`)];
  const what = `${exact ? '' : 'at least '}${quantity(orphans, 'event')} ${where} ${orphans === 1 ? 'was' : 'were'} never queued or delivered`;
  const consequence = 'No relay delivers them, and retention does not delete them.';
  return [critical(what, consequence, 'npx postcommit requeue-orphans')];
}
