import pg from 'pg';
import { findServer } from './connect.ts';
import type { ConnectionOptions } from './connection-options.ts';
import { resolveConnection } from './connection-options.ts';
import { codedDatabaseError } from './database-error.ts';

/** What is between this process and PostgreSQL. */
export interface SessionFacts {
  /** A pooler or a proxy answered the login, not PostgreSQL itself. */
  pooled: boolean;
  /** Statements of one connection run in different sessions: transaction or statement pooling. */
  shared: boolean;
}

const waitMsMax = 3_000;
const applicationName = 'postcommit doctor';

/**
 * Opens two connections and checks whether each has a session of its own. PostgreSQL announces the session's process id at
 * login; a pooler makes one up. In transaction mode a pooler assigns either the session that has been idle longest, so that
 * two consecutive statements run in different sessions; or the one used last, so that a second connection, with a
 * transaction open, takes the session of the first.
 */
export async function probeSession(options: ConnectionOptions): Promise<SessionFacts> {
  const { config } = await findServer(resolveConnection(options), applicationName);
  const [one, other] = [newClient(config), newClient(config)];
  try {
    await one.connect();
    await other.connect();
    const announced = (one as unknown as { processID: number | null }).processID;
    const met = [await sessionOf(one), await sessionOf(one)];
    await other.query('begin');
    const occupied = await sessionOf(other);
    // No answer: the pooler's only session is in the other connection's transaction.
    met.push(await sessionOf(one).catch(() => occupied));
    const shared = met.includes(occupied) || new Set(met).size > 1;
    return { pooled: shared || announced !== met[0], shared };
  } catch (error) {
    throw codedDatabaseError(error);
  } finally {
    // Not awaited: a silent peer would never answer.
    for (const client of [one, other]) client.end().catch(() => {});
  }
}

function newClient(config: pg.ClientConfig): pg.Client {
  const client = new pg.Client({
    ...config,
    application_name: applicationName,
    connectionTimeoutMillis: 8_000,
    query_timeout: waitMsMax,
  });
  client.on('error', () => {}); // The failing query reports it. Without a listener, 'error' would end the process.
  return client;
}

async function sessionOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid ?? 0;
}
