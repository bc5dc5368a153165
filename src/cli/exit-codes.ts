import type { ErrorCode } from '../errors.ts';
import { PostcommitError } from '../errors.ts';

/** What the exit code of every command means. Scripts rely on it, so a number never changes its meaning. */
export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  database: 3,
  notMigrated: 4,
  critical: 5,
  interrupted: 130,
} as const;

export const exitCodesHelp = `
Exit codes:
  0  done
  1  the check or the operation failed: a threshold exceeded, no such event or destination
  2  wrong usage: an unknown option or command, a config file that cannot be used
  3  the database cannot be reached, refused the connection or the right, or is a standby
  4  the outbox tables are missing, too old or too new, or their sequence lags: run \`postcommit migrate\`
  5  \`postcommit doctor\` found something critical
  129, 130  a signal ended it before all was done; what was done stays done`;

const byErrorCode: Partial<Record<ErrorCode, number>> = {
  POSTCOMMIT_E_USAGE: exitCodes.usage,
  POSTCOMMIT_E_BAD_OPTION: exitCodes.usage,
  POSTCOMMIT_E_BAD_CONFIG: exitCodes.usage,
  POSTCOMMIT_E_NO_CONFIG: exitCodes.usage,
  POSTCOMMIT_E_NO_DATABASE_URL: exitCodes.usage,
  POSTCOMMIT_E_BAD_SCHEMA_NAME: exitCodes.usage,
  POSTCOMMIT_E_BAD_ID: exitCodes.usage,
  POSTCOMMIT_E_BAD_FILTER: exitCodes.usage,
  POSTCOMMIT_E_BAD_CURSOR: exitCodes.usage,
  POSTCOMMIT_E_EMPTY_FILTER: exitCodes.usage,
  POSTCOMMIT_E_DATABASE_UNREACHABLE: exitCodes.database,
  POSTCOMMIT_E_DATABASE_REFUSED: exitCodes.database,
  POSTCOMMIT_E_READ_ONLY: exitCodes.database,
  POSTCOMMIT_E_PERMISSION_DENIED: exitCodes.database,
  POSTCOMMIT_E_ROW_SECURITY: exitCodes.database,
  POSTCOMMIT_E_POSTGRES_TOO_OLD: exitCodes.database,
  POSTCOMMIT_E_MIGRATION_MISSING: exitCodes.notMigrated,
  POSTCOMMIT_E_MIGRATION_NEWER: exitCodes.notMigrated,
  POSTCOMMIT_E_MIGRATION_CHANGED: exitCodes.notMigrated,
  POSTCOMMIT_E_MIGRATION_UNRELEASED: exitCodes.notMigrated,
  POSTCOMMIT_E_SEQUENCE_BEHIND: exitCodes.notMigrated,
};

export function exitCodeOf(error: unknown): number {
  const known = error instanceof PostcommitError ? byErrorCode[error.code] : undefined;
  return known ?? exitCodes.failed;
}

/** Ends the command with this code after it has said all there is to say. */
export class ExitWith extends Error {
  readonly exitCode: number;

  constructor(exitCode: number) {
    super(`exit code ${exitCode}`);
    this.exitCode = exitCode;
  }
}
