import type { ErrorCode } from '../errors.ts';
import { PostcommitError } from '../errors.ts';

/** The exit codes of all commands. Scripts rely on them: the meaning of a number never changes. */
export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  database: 3,
  notMigrated: 4,
  critical: 5,
  registry: 6,
} as const;

export const exitCodesHelp = `
Exit codes:
  0  success
  1  the operation failed, a threshold is exceeded, or a schema change breaks consumers
  2  usage error: unknown option or command, invalid config file, a dashboard open to everyone
  3  the database is unreachable, refused the connection, denied a privilege, or is a standby
  4  the outbox tables are missing, too old, too new or altered, or their sequence is behind; the message says what to do
  5  \`postcommit doctor\` has a critical finding (4 if the tables do not match this version)
  6  the schema registry is unreachable, or refused the request
  129, 130, 143  interrupted by a signal (SIGHUP, SIGINT, SIGTERM); completed changes are kept`;

const byErrorCode: Partial<Record<ErrorCode, number>> = {
  POSTCOMMIT_E_USAGE: exitCodes.usage,
  POSTCOMMIT_E_BAD_OPTION: exitCodes.usage,
  POSTCOMMIT_E_BAD_CONFIG: exitCodes.usage,
  POSTCOMMIT_E_BAD_SCHEDULE: exitCodes.usage,
  POSTCOMMIT_E_NO_CONFIG: exitCodes.usage,
  POSTCOMMIT_E_NO_DATABASE_URL: exitCodes.usage,
  POSTCOMMIT_E_NO_SCHEMA_FILE: exitCodes.usage,
  POSTCOMMIT_E_BAD_SCHEMA_FILE: exitCodes.usage,
  POSTCOMMIT_E_NO_JSON_SCHEMA: exitCodes.usage,
  POSTCOMMIT_E_BAD_CATALOGUE: exitCodes.usage,
  POSTCOMMIT_E_BAD_SCHEMA_NAME: exitCodes.usage,
  POSTCOMMIT_E_BAD_ID: exitCodes.usage,
  POSTCOMMIT_E_BAD_FILTER: exitCodes.usage,
  POSTCOMMIT_E_BAD_CURSOR: exitCodes.usage,
  POSTCOMMIT_E_EMPTY_FILTER: exitCodes.usage,
  POSTCOMMIT_E_DASHBOARD_NO_AUTH: exitCodes.usage,
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
  POSTCOMMIT_E_REGISTRY_UNREACHABLE: exitCodes.registry,
  POSTCOMMIT_E_REGISTRY_REFUSED: exitCodes.registry,
  POSTCOMMIT_E_SCHEMA_REFUSED: exitCodes.registry,
};

export function exitCodeOf(error: unknown): number {
  // It says how far the replay got. What went wrong is its cause.
  if (error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_REPLAY_INCOMPLETE')
    return exitCodeOf(error.cause);
  const known = error instanceof PostcommitError ? byErrorCode[error.code] : undefined;
  return known ?? exitCodes.failed;
}

/** Ends the command with this exit code. The command has already printed everything. */
export class ExitWith extends Error {
  readonly exitCode: number;

  constructor(exitCode: number) {
    super(`exit code ${exitCode}`);
    this.exitCode = exitCode;
  }
}
