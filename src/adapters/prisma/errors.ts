import { codedDatabaseError } from '../../database/database-error.ts';
import { PostcommitError } from '../../errors.ts';
import { notATransaction } from '../refusal.ts';

interface PrismaError {
  code?: unknown;
  message?: string;
  meta?: {
    /** The SQLSTATE, in Prisma 6. */
    code?: unknown;
    message?: unknown;
    /** Prisma 7. */
    driverAdapterError?: { cause?: { originalCode?: unknown; originalMessage?: unknown; kind?: unknown } };
  };
}

/** Codes of Prisma for a connection that cannot be opened or was lost. */
const unreachable = new Set<unknown>(['P1001', 'P1002', 'P1008', 'P1017']);

/**
 * The error that the database has reported inside of one of Prisma's, as `pg` reports it: with the SQLSTATE as its code.
 * `undefined` if there is none.
 */
export function driverErrorOf(error: unknown): Error | undefined {
  const { code, message = '', meta } = (error ?? {}) as PrismaError;
  const cause = meta?.driverAdapterError?.cause;
  const state = cause?.originalCode ?? meta?.code;
  if (typeof state === 'string' && /^[0-9A-Z]{5}$/.test(state)) {
    return driverError(state, String(cause?.originalMessage ?? meta?.message ?? message), error);
  }
  // 08006: connection failure.
  return unreachable.has(code) ? driverError('08006', message, error) : undefined;
}

function driverError(code: string, message: string, cause: unknown): Error {
  return Object.assign(new Error(message, { cause }), { code });
}

/** An error with a code where Postcommit knows what to do, or Prisma's own. */
export function codedPrismaError(error: unknown): unknown {
  const { code, message = '' } = (error ?? {}) as PrismaError;
  if (code === 'P2028') {
    const { length } = message;
    return Object.assign(
      notATransaction(`Prisma has ended this transaction: ${message.slice(message.lastIndexOf('\n', length - 2) + 1)}`),
      { cause: error },
    );
  }
  const driver = driverErrorOf(error);
  const coded = driver && codedDatabaseError(driver);
  return coded instanceof PostcommitError ? coded : error;
}
