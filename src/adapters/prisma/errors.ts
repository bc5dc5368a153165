import { codedDatabaseError } from '../../database/database-error.ts';
import { PostcommitError } from '../../errors.ts';
import { notATransaction } from '../refusal.ts';
import { errorWithState } from '../transaction-errors.ts';

interface PrismaError {
  code?: unknown;
  /** In place of `code`, where a client without a driver adapter cannot connect. */
  errorCode?: unknown;
  message?: string;
  meta?: {
    /** The SQLSTATE, in Prisma 6. */
    code?: unknown;
    message?: unknown;
    /** Prisma 7. */
    driverAdapterError?: { cause?: { originalCode?: unknown; originalMessage?: unknown; kind?: unknown } };
  };
}

/** Codes of Prisma for a connection that cannot be opened or was lost, and for a pool that had none in time. */
const unreachable = new Set<unknown>(['P1001', 'P1002', 'P1008', 'P1017', 'P2024']);
/** A transaction that got no connection within `maxWait`. The code of one that has timed out is P2028 too. */
const notStarted = /Unable to start a transaction/;

/**
 * The error that the database has reported inside of one of Prisma's, as `pg` reports it: with the SQLSTATE as its code.
 * `undefined` if there is none.
 */
export function driverErrorOf(error: unknown): Error | undefined {
  const { code, errorCode, message = '', meta } = (error ?? {}) as PrismaError;
  const cause = meta?.driverAdapterError?.cause;
  const state = cause?.originalCode ?? meta?.code;
  if (typeof state === 'string' && /^[0-9A-Z]{5}$/.test(state)) {
    return errorWithState(state, String(cause?.originalMessage ?? meta?.message ?? message), error);
  }
  const isUnreachable = unreachable.has(code ?? errorCode) || (code === 'P2028' && notStarted.test(message));
  return isUnreachable ? errorWithState('08006', message, error) : undefined;
}

/** An error with a code where Postcommit knows what to do, or Prisma's own. */
export function codedPrismaError(error: unknown): unknown {
  const { code, message = '' } = (error ?? {}) as PrismaError;
  const driver = driverErrorOf(error);
  if (code === 'P2028' && driver === undefined) {
    const { length } = message;
    return Object.assign(
      notATransaction(`Prisma has ended this transaction: ${message.slice(message.lastIndexOf('\n', length - 2) + 1)}`),
      { cause: error },
    );
  }
  const coded = driver && codedDatabaseError(driver);
  return coded instanceof PostcommitError ? coded : error;
}
