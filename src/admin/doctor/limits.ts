import { PostcommitError } from '../../errors.ts';

/** A value over a limit is a warning, over ten times the limit it is critical. */
export interface DoctorLimits {
  /** How long an event may have been due. Default 300,000 (5 minutes). */
  oldestPendingMsMax: number;
  /** How long a session may hold a snapshot. Reports and dumps take a while. Default 300,000 (5 minutes). */
  snapshotMsMax: number;
  /** How long a session may hold an advisory lock of the outbox. Default 60,000 (1 minute). */
  lockMsMax: number;
  /** Dead rows in the queue or on the shelf. Autovacuum starts at 5,000. Default 100,000. */
  deadRowsMax: number;
  /** WAL that the server keeps for one replication slot. Default 1,073,741,824 (1 GiB). */
  slotBytesMax: number;
}

const defaults: DoctorLimits = {
  oldestPendingMsMax: 300_000,
  snapshotMsMax: 300_000,
  lockMsMax: 60_000,
  deadRowsMax: 100_000,
  slotBytesMax: 1_073_741_824,
};

export function resolveLimits(overrides: Partial<DoctorLimits> = {}): DoctorLimits {
  const known = Object.keys(defaults) as (keyof DoctorLimits)[];
  const unknown = Object.keys(overrides).find((name) => !known.includes(name as keyof DoctorLimits));
  if (unknown !== undefined) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      `There is no limit ${JSON.stringify(unknown)}. Valid limits: ${known.join(', ')}.`,
    );
  }
  const limits = { ...defaults, ...overrides };
  for (const name of known) {
    if (!Number.isSafeInteger(limits[name]) || limits[name] < 0) {
      throw new PostcommitError(
        'POSTCOMMIT_E_BAD_OPTION',
        `${name} must be a whole number from 0. Got ${limits[name]}.`,
      );
    }
  }
  return limits;
}
