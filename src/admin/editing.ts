import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import { unpark } from '../outbox/delivering/unpark.ts';
import { editDeadLetter } from '../outbox/operating/edit-dead-letter.ts';
import { findSeqsById } from '../outbox/operating/find-seqs-by-id.ts';
import { payloadToJson } from '../payload-json.ts';
import { toReference } from './event-reference.ts';

/** As the largest payload that `payloadBytesMax` of an outbox allows. */
const payloadBytesMax = 67_108_864;

export interface EditedEvent {
  /** Events changed: 1. */
  count: 1;
  seq: string;
}

/** Checks the payload and makes the edit. Fails if the event is not a dead letter (any more). */
export async function editAndRetryDeadLetter(
  db: Executor,
  schema: string,
  idOrSeq: string,
  payload: unknown,
  operator: { by: string; reason: string },
): Promise<EditedEvent> {
  const reference = toReference(idOrSeq);
  const payloadJson = payloadToJson(payload, payloadBytesMax);
  const seq = 'seq' in reference ? reference.seq : await seqOfId(db, schema, reference.id);
  const edited = seq === undefined ? undefined : await editDeadLetter(db, schema, { seq, payloadJson, ...operator });
  if (seq === undefined || edited === undefined) {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_DEAD_LETTER', `Event: ${String(idOrSeq).slice(0, 80)}.`);
  }
  if (edited.freedKeys.length > 0) await unpark(db, schema, edited.freedKeys);
  return { count: 1, seq };
}

async function seqOfId(db: Executor, schema: string, id: string): Promise<string | undefined> {
  const found = await findSeqsById(db, schema, [id]);
  if (found.length > 1) {
    const seqs = found.map(({ seq }) => seq).join(', ');
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_FILTER',
      `Several events have this id. Pass one of their seqs: ${seqs}.`,
    );
  }
  return found[0]?.seq;
}
