import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { PostcommitError } from '../../errors.ts';
import { readJson } from '../read-json.ts';

const sequenceSql = perSchema(
  (s) => `
select json_build_object('next', x.next_seq::text, 'needed', x.needed_seq::text, 'behind', x.next_seq < x.needed_seq)::text as json
  from ${s}.sequence_state() x`,
);

/** State of the sequence that `seq` is drawn from. */
export interface SequenceFacts {
  /** The seq of the next event. */
  next: string;
  /** The lowest seq above every seq in use. */
  needed: string;
  /** Whether new events get a seq that is in use, or lower than one in use. */
  behind: boolean;
}

export async function examineSequence(db: Executor, schema: string): Promise<SequenceFacts> {
  const [facts] = await readJson<SequenceFacts>(db, sequenceSql(schema));
  return facts as SequenceFacts;
}

/** Fails if rows were copied to this server without the sequence. Delivering would hide the problem until order is lost. */
export async function requireSequence(db: Executor, schema: string): Promise<void> {
  const { next, needed, behind } = await examineSequence(db, schema);
  if (!behind) return;
  const detail = `(the next event would get seq ${next} instead of ${needed})`;
  throw new PostcommitError('POSTCOMMIT_E_SEQUENCE_BEHIND', detail);
}
