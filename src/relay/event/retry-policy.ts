import { PostcommitError } from '../../errors.ts';

/** Fixed delays between attempts. Their number is the limit: three delays allow four attempts. */
export interface RetrySchedule {
  delaysMs: readonly number[];
}

/** Exponential backoff with full jitter: a random delay below a ceiling that doubles. */
export interface RetryExponential {
  /** Ceiling of the first delay. Default 1,000. */
  baseMs?: number;
  /** The ceiling never exceeds this. Default 3,600,000 (an hour). */
  capMs?: number;
  /**
   * Attempts before the event becomes a dead letter. Default 80: with the other defaults the delays add up to 34 hours
   * on average, so a day's outage of what a handler needs loses nothing.
   */
  attemptsMax?: number;
}

export type RetryPolicy = RetrySchedule | RetryExponential;

/** A policy without gaps. */
export type ResolvedRetry = RetrySchedule | Required<RetryExponential>;

export const defaultRetry: Required<RetryExponential> = { baseMs: 1_000, capMs: 3_600_000, attemptsMax: 80 };

const exponentialFields = Object.keys(defaultRetry);

/**
 * Checks a policy once, so that no delay can be NaN, negative or infinite later, and no misspelt limit is ignored. What an
 * exponential policy leaves out comes from `base`, if that is exponential too.
 */
export function resolveRetry(
  policy: RetryPolicy = {},
  { option = 'retry', base = defaultRetry }: { option?: string; base?: ResolvedRetry } = {},
): ResolvedRetry {
  if (typeof policy !== 'object' || policy === null || Array.isArray(policy)) {
    throw badRetry(`${option} must be { delaysMs } or { baseMs, capMs, attemptsMax }`);
  }
  const allowed = 'delaysMs' in policy ? ['delaysMs'] : exponentialFields;
  const unknown = Object.keys(policy).find((field) => !allowed.includes(field));
  if (unknown !== undefined) throw badRetry(`${option}.${unknown} does not belong here, only ${allowed.join(', ')}`);
  if ('delaysMs' in policy) {
    const ok = Array.isArray(policy.delaysMs) && policy.delaysMs.length <= 1_000 && policy.delaysMs.every(isDelay);
    if (!ok)
      throw badRetry(`${option}.delaysMs must be a list of at most 1,000 numbers of milliseconds, each 0 or more`);
    return { delaysMs: [...policy.delaysMs] };
  }
  const { baseMs, capMs, attemptsMax } = { ...('delaysMs' in base ? defaultRetry : base), ...withoutUndefined(policy) };
  if (!isDelay(baseMs)) throw badRetry(`${option}.baseMs must be 0 or more milliseconds`);
  if (!isDelay(capMs)) throw badRetry(`${option}.capMs must be 0 or more milliseconds`);
  if (!Number.isInteger(attemptsMax) || attemptsMax < 1 || attemptsMax > 1_000) {
    throw badRetry(`${option}.attemptsMax must be a whole number from 1 to 1,000`);
  }
  return { baseMs, capMs, attemptsMax };
}

/**
 * How long to wait after failed attempt `attempt` (from 1), or `undefined` when it was the last. `attemptsMax` is the limit
 * that the event was emitted with: it counts instead of the policy's, and the last delay of a schedule is repeated until then.
 * A pure function of its arguments.
 */
export function retryDelayMs(
  policy: ResolvedRetry,
  attempt: number,
  { attemptsMax, random = Math.random }: { attemptsMax?: number | undefined; random?: () => number } = {},
): number | undefined {
  if (attempt >= (attemptsMax ?? attemptsMaxOf(policy))) return undefined;
  if ('delaysMs' in policy) return policy.delaysMs[attempt - 1] ?? policy.delaysMs.at(-1) ?? defaultRetry.baseMs;
  return Math.floor(random() * Math.min(policy.capMs, policy.baseMs * 2 ** Math.min(attempt - 1, 50)));
}

function attemptsMaxOf(policy: ResolvedRetry): number {
  return 'delaysMs' in policy ? policy.delaysMs.length + 1 : policy.attemptsMax;
}

/** A field that is undefined is as good as left out. */
function withoutUndefined(policy: RetryExponential): Partial<Required<RetryExponential>> {
  return Object.fromEntries(Object.entries(policy).filter(([, value]) => value !== undefined));
}

function isDelay(value: unknown): boolean {
  // A year: more is probably a wrong unit, and far more overflows a timestamp.
  return typeof value === 'number' && value >= 0 && value <= 366 * 24 * 3_600_000;
}

function badRetry(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${detail}.`);
}
