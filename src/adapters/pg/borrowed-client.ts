import type { Executor } from '../../database/executor.ts';
import type { PgClient } from './client.ts';
import { certainStatus, requireClient, requireOpen } from './client.ts';

/**
 * Runs statements on the `pg` client of another database client's transaction, such as an ORM's. Refuses one that is certainly
 * not in an open transaction.
 */
export function executorInTransaction(client: PgClient): Executor {
  requireClient(client);
  requireOpen(client);
  return client as Executor;
}

/** Whether the client is certainly in an open transaction. The caller knows that it is still the one of the handle. */
export function isInTransaction(client: PgClient): boolean {
  return certainStatus(client) === 'T';
}
