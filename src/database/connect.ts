import pg from 'pg';
import { PostcommitError } from '../errors.ts';
import type { Server, ServerList, SessionAttributes } from './connection-string.ts';
import { codedDatabaseError, isConnectionFailure } from './database-error.ts';

const sessionSql = `
select pg_is_in_recovery() as standby,
       current_setting('transaction_read_only') = 'on' as "readOnly",
       current_setting('default_transaction_isolation') = 'read committed' as "readCommitted",
       (select s.setting::integer from pg_settings s where s.name = 'lock_timeout') as "lockTimeoutMs",
       pg_backend_pid() as pid`;

/** What a new session reports about itself. */
export interface SessionSettings {
  standby: boolean;
  /** Whether transactions are read-only by default. */
  readOnly: boolean;
  /** Whether transactions are READ COMMITTED by default. */
  readCommitted: boolean;
  /** For how long a statement waits for a lock by default, in milliseconds; 0 means without limit. */
  lockTimeoutMs: number;
  /** The server process that runs the session. */
  pid: number;
}

/** With several servers, one that is down must not use up the time in which a relay has to renew its lease. */
const connectMsMaxEach = 3_000;

export function connectTimeoutMs({ servers }: ServerList, timeoutMs: number): number {
  return servers.length > 1 ? Math.min(timeoutMs, connectMsMaxEach) : timeoutMs;
}

/** Rejects with POSTCOMMIT_E_READ_ONLY if the session is not what `attributes` asks for. */
export async function requireSession(client: pg.Client, attributes: SessionAttributes): Promise<SessionSettings> {
  const { rows } = await client.query<SessionSettings>(sessionSql);
  const session = rows[0] as SessionSettings;
  if (attributes === 'any') return session;
  if (session.standby) throw new PostcommitError('POSTCOMMIT_E_READ_ONLY', '(the server is a standby)');
  if (session.readOnly && attributes === 'read-write') {
    throw new PostcommitError('POSTCOMMIT_E_READ_ONLY', '(default_transaction_read_only is on)');
  }
  return session;
}

/**
 * Connects to the first server that is reachable and suitable. As in libpq, a server that refuses the login ends the
 * search, because the next one has the same users.
 */
export async function connectFirst<T>(list: ServerList, connect: (server: Server) => Promise<T>): Promise<T> {
  const failures: { address: string; error: unknown }[] = [];
  for (const server of list.servers) {
    try {
      return await connect(server);
    } catch (error) {
      if (list.servers.length === 1 || !(isReadOnly(error) || isConnectionFailure(error))) throw error;
      failures.push({ address: server.address, error });
    }
  }
  const why = failures.map(({ address, error }) => `${address}: ${reason(error)}`).join('; ');
  const reached = failures.some(({ error }) => isReadOnly(error));
  const code = reached ? 'POSTCOMMIT_E_READ_ONLY' : 'POSTCOMMIT_E_DATABASE_UNREACHABLE';
  throw new PostcommitError(code, `(${why})`, { cause: failures[0]?.error });
}

/** The server that `connectFirst` would choose, for `pg.Pool`, which takes one server only. */
export async function findServer(list: ServerList, applicationName: string): Promise<Server> {
  try {
    return await connectFirst(list, async (server) => {
      const client = new pg.Client({
        ...server.config,
        application_name: applicationName,
        connectionTimeoutMillis: connectTimeoutMs(list, 8_000),
        query_timeout: 8_000,
      });
      client.on('error', () => {}); // The failing query reports it. Without a listener, 'error' would end the process.
      try {
        await client.connect();
        await requireSession(client, list.attributes);
        return server;
      } finally {
        client.end().catch(() => {}); // Not awaited: a silent peer would never answer.
      }
    });
  } catch (error) {
    throw codedDatabaseError(error);
  }
}

function isReadOnly(error: unknown): boolean {
  return error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_READ_ONLY';
}

function reason(error: unknown): string {
  if (error instanceof PostcommitError) return error.detail.replace(/^\(|\)$/g, '');
  // Node's AggregateError, from a host with several addresses, has a code and no message.
  const { message, code } = error as { message?: string; code?: string };
  return message || code || String(error);
}
