import type { SequenceFacts } from '../../outbox/examining/examine-sequence.ts';
import type { Judgement } from './finding.ts';
import { critical, ok } from './finding.ts';

export function judgeSequence({ next, needed, behind }: SequenceFacts): Judgement[] {
  if (!behind) return [ok(`the next event gets seq ${next}`)];
  const what = `the sequence of the log is behind: the next event would get seq ${next} instead of ${needed}`;
  const consequence =
    'New events are delivered before older ones of their aggregate, or refused as duplicates. Rows were copied to this server and the sequence was not, as logical replication does.';
  return [critical(what, consequence, 'postcommit migrate')];
}
