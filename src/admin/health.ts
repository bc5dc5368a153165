import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import { duration, quantity, shown } from '../format.ts';
import { count } from '../outbox/operating/count.ts';
import { checkOptionNames } from './option-names.ts';

/** When an outbox counts as unhealthy. A limit that is not given is not checked. */
export interface OutboxHealthLimits {
  /** For how long the oldest due event may have been due, in milliseconds. Default: no limit. */
  oldestPendingMsMax?: number;
  /** Dead letters that are tolerated. Default: no limit. */
  deadLettersMax?: number;
}

export interface OutboxHealth {
  healthy: boolean;
  /** Which limits are exceeded, in words. */
  reasons: string[];
  /** As in `counts()`; `null` if no event is due. */
  oldestPendingMs: number | null;
  deadLetters: number;
}

/** Reads as little as `counts()` and compares it with the limits. */
export async function checkHealth(db: Executor, schema: string, limits: OutboxHealthLimits): Promise<OutboxHealth> {
  checkOptionNames(limits, 'health', ['oldestPendingMsMax', 'deadLettersMax']);
  const { oldestPendingMsMax = Number.POSITIVE_INFINITY, deadLettersMax = Number.POSITIVE_INFINITY } = limits;
  for (const [name, value] of Object.entries({ oldestPendingMsMax, deadLettersMax })) {
    if (typeof value === 'number' && value >= 0) continue;
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${name} must be a number from 0 on. Got ${shown(value)}.`);
  }
  const { oldestPendingMs, failed: deadLetters } = await count(db, schema);
  const reasons: string[] = [];
  if ((oldestPendingMs ?? 0) > oldestPendingMsMax) {
    reasons.push(`the oldest due event has been due for ${duration(oldestPendingMs ?? 0)}`);
  }
  if (deadLetters > deadLettersMax) reasons.push(quantity(deadLetters, 'dead letter'));
  return { healthy: reasons.length === 0, reasons, oldestPendingMs, deadLetters };
}
