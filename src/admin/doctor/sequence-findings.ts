import type { SequenceFacts } from '../../outbox/examining/examine-sequence.ts';
import type { CheckFinding } from './finding.ts';
import { critical, ok } from './finding.ts';

export function sequenceFindings({ next, needed, behind }: SequenceFacts): CheckFinding[] {
  if (!behind) return [ok(`the next event gets seq ${next}`)];
  const what = `the sequence of the log is behind: the next event would get seq ${next}, but must get at least ${needed}`;
  const consequence =
    'New events are delivered before older events of their aggregate, or fail as duplicates. Logical replication copies rows without the sequence.';
  return [critical(what, consequence, 'npx postcommit migrate')];
}
