import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { PostcommitError } from '../../errors.ts';
import { readJson } from '../read-json.ts';

const sequenceSql = perSchema(
  (s) => `
select json_build_object('next', x.next_seq::text, 'needed', x.needed_seq::text, 'behind', x.next_seq < x.needed_seq)::text as json
  from ${s}.sequence_state() x`,
);

/** Where the sequence stands that the log's `seq` is drawn from. */
export interface SequenceFacts {
  /** The seq that the next event gets. */
  next: string;
  /** The lowest seq that is higher than every seq in use. */
  needed: string;
  /** Whether new events get a seq that is in use, or lower than one. */
  behind: boolean;
}

export async function examineSequence(db: Executor, schema: string): Promise<SequenceFacts> {
  const [facts] = await readJson<SequenceFacts>(db, sequenceSql(schema));
  return facts as SequenceFacts;
}

/** Fails where rows were copied to this server without the sequence. Delivering would hide it until order is lost. */
export async function requireSequence(db: Executor, schema: string): Promise<void> {
  const { next, needed, behind } = await examineSequence(db, schema);
  if (!behind) return;
  const detail = `(the next event would get seq ${next} instead of ${needed})`;
  throw new PostcommitError('POSTCOMMIT_E_SEQUENCE_BEHIND', detail);
}
