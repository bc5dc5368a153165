import { sqlState } from '../../database/database-error.ts';
import { toAscii } from '../../database/storable-text.ts';
import { PostcommitError } from '../../errors.ts';
import type { TargetError } from '../../outbox/delivering/fail.ts';
import { errorText } from '../../telemetry/error-text.ts';
import { deadLetterTransition, type SettleEntry } from './transition.ts';

/**
 * The entry with its error texts in ASCII, for a database whose encoding lacks one of their characters. The same object if
 * they are ASCII already.
 */
export function withPlainErrors(entry: SettleEntry): SettleEntry {
  if (!('failure' in entry && 'errors' in entry.failure)) return entry;
  const { failure } = entry;
  const errors = failure.errors.map((each) => ({ ...each, error: toAscii(each.error) }));
  if (errors.every(({ error }, index) => error === failure.errors[index]?.error)) return entry;
  return { ...entry, failure: { ...failure, errors } } as SettleEntry;
}

/**
 * The same with the names of targets in ASCII as well: the last form in which the outcome itself may be stored. A handler
 * whose name this changes is called again if the event is retried, so it is only done to a single entry.
 */
export function withPlainNames(entry: SettleEntry): SettleEntry {
  if ('settlement' in entry) {
    const { settlement } = entry;
    return { ...entry, settlement: { ...settlement, targets: settlement.targets.map(toAscii) } };
  }
  const { failure } = entry;
  const done = failure.done?.map(toAscii);
  const errors = 'errors' in failure ? failure.errors.map(withPlainTexts) : undefined;
  return { ...entry, failure: { ...failure, ...(done && { done }), ...(errors && { errors }) } } as SettleEntry;
}

function withPlainTexts({ target, code, error }: TargetError): TargetError {
  return { target: target === null ? null : toAscii(target), code: toAscii(code), error: toAscii(error) };
}

/**
 * The dead letter for an event whose outcome the database refuses in every form. It keeps the targets that have the event; an
 * event that has reached all of its targets owes none of them.
 */
export function asDeadLetter(entry: SettleEntry, refusal: unknown, poison: 'skip' | 'block'): SettleEntry {
  const { event } = entry;
  const targets = 'settlement' in entry ? entry.settlement.targets : (entry.failure.done ?? event.done);
  const done = targets.map(toAscii);
  const reached = done.length > 0 ? `It has reached ${done.join(', ')}. ` : '';
  const detail = `${reached}(${sqlState(refusal)}: ${errorText(refusal)})`;
  const error = new PostcommitError('POSTCOMMIT_E_RESULT_REFUSED', detail, { cause: refusal });
  return {
    event,
    kind: 'deadLettered',
    failure: {
      seq: event.seq,
      attempts: event.attempts,
      transition: deadLetterTransition(event, poison),
      reason: 'rejected',
      done,
      ...('settlement' in entry && { owed: [] }),
      errors: [{ target: null, code: error.code, error: toAscii(errorText(error.message)) }],
    },
  };
}
