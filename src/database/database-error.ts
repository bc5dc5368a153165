import { PostcommitError } from '../errors.ts';
import { roleRights } from './roles.ts';

const unreachable = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  // postgres.js
  'CONNECT_TIMEOUT',
  'CONNECTION_CLOSED',
  'CONNECTION_DESTROYED',
]);

/** Without a code: errors of pg, and of the pools of pg, Knex and Sequelize when they have no connection in time. */
const unreachableText =
  /connection (terminated|ended|error|timed out)|not queryable|Client was closed|timeout expired|read timeout|timeout exceeded when trying to connect|timeout acquiring a connection/i;

/** What waits for locks of the outbox, as the context of an error names it: its functions, and the INSERT of the inbox. */
const ourStatements =
  /\.(emit|emit_one|emit_one_if_open|emit_once|lock_keys|lock_new_ids|forget_target|pause_queue|cancel_events|end_cancelled|make_due|replay|requeue_unqueued|prune_events|rotate_partitions|sweep_partition|emit_tick|record_processed)\(|\bprocessed_events(_pkey)?\b/;

/** The routines of the outbox that a role may call, by name. */
const ownRoutines = new Set(
  Object.values(roleRights).flatMap(({ routines }) => routines.map((routine) => routine.split('(')[0])),
);

export function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : undefined;
}

/** Whether the connection failed rather than the statement, so that the statement may succeed on another connection. */
export function isConnectionFailure(error: unknown): boolean {
  const code = sqlState(error);
  if (code === undefined) {
    return error instanceof Error && unreachableText.test(error.message);
  }
  // 08: connection exceptions; 57P01-57P05: the server is shutting down or ended the session.
  return unreachable.has(code) || isMissingSocket(error) || code.startsWith('08') || code.startsWith('57P');
}

/** ENOENT for a missing Unix socket. From any other call, e.g. for a missing certificate file, it is not an outage. */
function isMissingSocket(error: unknown): boolean {
  const { code, syscall } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' && syscall === 'connect';
}

/**
 * Whether the server refuses a value of the statement, so that repeating the statement cannot succeed. 21: a row twice in
 * one statement; 22: a value that its type or the database's encoding cannot represent; 23: a constraint; 54: a limit of the
 * server. A row without a partition is a 23514 that names no constraint: the value is not at fault.
 */
export function isRefusedValue(error: unknown): boolean {
  const code = sqlState(error);
  if (code?.length !== 5 || !/^(21|22|23|54)/.test(code)) return false;
  return code !== '23514' || (error as { constraint?: unknown }).constraint !== undefined;
}

/** Converts a driver error into one with a code where Postcommit knows what to do. Returns others unchanged. */
export function codedDatabaseError(error: unknown): unknown {
  if (error instanceof PostcommitError) return error;
  const code = sqlState(error);
  // Node's AggregateError, from a host with several addresses, has a code and no message.
  const message = (error instanceof Error ? error.message : String(error)) || code;
  const coded = (name: ConstructorParameters<typeof PostcommitError>[0]) =>
    new PostcommitError(name, `(${message})`, { cause: error });
  switch (code) {
    case '42P01': // undefined table
    case '3F000': // undefined schema
    case '42883': // undefined function
    case '42703': // undefined column
      // Our statements use aliases of one letter: `column c.state does not exist`.
      return /outbox_|processed_events|migrations|partition|constrain_log|schema|^column [a-z]\.\w+ /.test(
        String(message),
      ) || ownRoutines.has(/\.(\w+)\(/.exec(String(message))?.[1] ?? '')
        ? coded('POSTCOMMIT_E_MIGRATION_MISSING')
        : error;
    case '25P02':
      return coded('POSTCOMMIT_E_TRANSACTION_ABORTED');
    case '25P01':
      return coded('POSTCOMMIT_E_NOT_A_TRANSACTION');
    case '23505':
      if (/outbox_events_(\w+_)?id_key/.test(String(message))) return coded('POSTCOMMIT_E_DUPLICATE_ID');
      // A seq comes from a sequence. If it exists already, the sequence has gone back.
      return /outbox_events_(\w+_)?pkey|outbox_queue_pkey/.test(String(message))
        ? coded('POSTCOMMIT_E_SEQUENCE_BEHIND')
        : error;
    case 'PC002':
      return coded('POSTCOMMIT_E_SEQUENCE_BEHIND');
    case '25006':
      return coded('POSTCOMMIT_E_READ_ONLY');
    case '23514':
      // Raised by check_event.sql, so the message is in English on every server.
      if (/outbox_events_available_at_check/.test(String(message))) return coded('POSTCOMMIT_E_BAD_DELAY');
      return /outbox_events_\w+_check/.test(String(message)) ? coded('POSTCOMMIT_E_BAD_EVENT') : error;
    case '25000':
      return /emit_once/.test(String(message)) ? coded('POSTCOMMIT_E_NEEDS_READ_COMMITTED') : error;
    case '55P03':
      if (/cannot emit for more than/.test(String(message))) return coded('POSTCOMMIT_E_BULK_EMIT_BLOCKED');
      return ourStatements.test(String((error as { where?: unknown }).where))
        ? coded('POSTCOMMIT_E_LOCK_TIMEOUT')
        : error;
    case '22P05':
    case '22021':
      return coded('POSTCOMMIT_E_TEXT_NOT_STORABLE');
    case '0A000': // The driver always asks for UTF8, and one encoding cannot be converted to it: MULE_INTERNAL.
      return /^conversion between \w+ and \w+ is not supported/.test(String(message))
        ? coded('POSTCOMMIT_E_DATABASE_ENCODING')
        : error;
    case '54000': // a limit of jsonb or of an index
    case '54001': // nested deeper than the server's stack
      return coded('POSTCOMMIT_E_PAYLOAD_TOO_LARGE');
    case '42501':
      // The routine distinguishes it from other missing rights, because messages are in the language of the server. An
      // INSERT that a policy refuses comes from another routine.
      return (error as { routine?: unknown }).routine === 'check_enable_rls'
        ? coded('POSTCOMMIT_E_ROW_SECURITY')
        : coded('POSTCOMMIT_E_PERMISSION_DENIED');
    case '28000':
    case '28P01':
    case '3D000':
    case '53300':
      return coded('POSTCOMMIT_E_DATABASE_REFUSED');
    case 'CONNECTION_ENDED': // postgres.js, after sql.end()
      return coded('POSTCOMMIT_E_CLIENT_CLOSED');
  }
  if (/after calling end on the pool/.test(String(message))) return coded('POSTCOMMIT_E_CLIENT_CLOSED');
  if (isRefusal(code, String(message))) return coded('POSTCOMMIT_E_DATABASE_REFUSED');
  return isConnectionFailure(error) ? coded('POSTCOMMIT_E_DATABASE_UNREACHABLE') : error;
}

/** Refusals without an SQLSTATE: a missing password, no TLS, or a certificate that is not trusted. */
function isRefusal(code: string | undefined, message: string): boolean {
  if (code === undefined) return /^SASL: |does not support SSL/.test(message);
  return /^(ERR_TLS|ERR_SSL|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/.test(code);
}

/**
 * Whether PostgreSQL can never return a stored value: it has no equivalent in the client's encoding, its text is too long, or
 * its page is damaged. PostgreSQL 14 and 18 report a text over 1 GB as 54000 (14: "out of memory", 18: "string buffer exceeds
 * maximum allowed length"). XX000 with this message is a single allocation over 1 GB. XX001 and XX002: a page of the table, its
 * TOAST table or an index is corrupted. An error of the disk (58030) may be transient, so it does not count.
 */
export function isUnreadable(error: unknown): boolean {
  const code = sqlState(error) ?? '';
  if (/^(22|54|XX001$|XX002$)/.test(code)) return true;
  return code === 'XX000' && /invalid memory alloc request size/.test(String(error));
}
