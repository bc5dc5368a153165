import { PostcommitError } from './errors.ts';
import { shown } from './format.ts';

const dayMs = 86_400_000;

/** How long events and processed events are kept by default. */
export const keepMsDefault = 30 * dayMs;

/** 100 years, well below the maximum of an interval in PostgreSQL. */
const keepMsMax = 36_525 * dayMs;

/** Checks a retention period. `Infinity` keeps rows forever. */
export function checkKeepMs(name: string, value: unknown): number {
  if (value === Number.POSITIVE_INFINITY) return value;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= keepMsMax) return value;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    `${name} must be a whole number from 0 to ${keepMsMax}, or Infinity to keep rows forever. Got ${shown(value)}.`,
  );
}
