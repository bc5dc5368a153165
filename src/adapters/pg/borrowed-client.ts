import pg from 'pg';
import type { Executor } from '../../database/executor.ts';
import type { PgClient } from './client.ts';
import { certainStatus, requireClient, requireOpen } from './client.ts';

/**
 * Runs statements on a `pg` client or pool that another database client owns, such as an ORM. Values are bound and read as
 * `pg` does it, whatever parsers the owner has set for its connections.
 */
export function executorOn(client: Pick<PgClient, 'query'>): Executor {
  const send = client.query.bind(client) as unknown as (config: object) => ReturnType<Executor['query']>;
  return { query: (text, values) => send({ text, values, types: pg.types }) };
}

/** The same inside of the owner's transaction. Refuses a client that is certainly not in an open transaction. */
export function executorInTransaction(client: PgClient): Executor {
  requireClient(client);
  requireOpen(client);
  return executorOn(client);
}

/** Whether the client is certainly in an open transaction. The caller knows that it is still the one of the handle. */
export function isInTransaction(client: PgClient | undefined): boolean {
  return client !== undefined && certainStatus(client) === 'T';
}
