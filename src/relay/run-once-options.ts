import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';
import type { Counters } from './telemetry/counters.ts';

/** Options of `relay.runOnce()`. */
export interface RunOnceOptions {
  /**
   * After this time the relay starts no more deliveries and stops as `stop()` does: deliveries in flight have `stopTimeoutMs` to
   * finish, the rest is released and no attempt is counted. So the call takes at most `timeoutMs` and `stopTimeoutMs` together, and
   * some seconds more if the database does not answer. Default: no limit, until nothing is due.
   */
  timeoutMs?: number;
}

/** What a call of `relay.runOnce()` has done. */
export interface RunOnceResult extends Pick<Counters, 'delivered' | 'failed' | 'deadLettered'> {
  /**
   * Whether nothing was left that this relay could deliver. Events that another relay is delivering, that wait for a retry, a delay or a
   * destination that is down, do not count. `false`: the time limit or `stop()` ended the call, and more events may be due.
   */
  complete: boolean;
}

const optionNames = ['timeoutMs'];
const timeoutMsMax = 86_400_000;

export function resolveRunOnce(given: RunOnceOptions): { timeoutMs: number | undefined } {
  if (typeof given !== 'object' || given === null) throw fail('runOnce() takes an object of options.');
  const unknown = unknownOption(given, optionNames, 'runOnce()');
  if (unknown !== undefined) throw fail(unknown);
  const { timeoutMs } = given;
  if (timeoutMs !== undefined && (!Number.isInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > timeoutMsMax)) {
    throw fail(`timeoutMs must be a whole number from 1 to ${timeoutMsMax}. Got ${String(timeoutMs)}.`);
  }
  return { timeoutMs };
}

function fail(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
