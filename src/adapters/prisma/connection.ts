import type { ConnectionConfig, ConnectionOptions } from '../../database/connection-options.ts';
import { fieldsOfUrl } from '../../database/url-fields.ts';
import { PostcommitError } from '../../errors.ts';
import { sharedPoolSettings } from '../pool-settings.ts';

/** What the driver adapter `@prisma/adapter-pg` has beyond its types: the config of its `pg` pool. */
interface AdapterInside {
  adapterName?: unknown;
  config?: ConnectionConfig & { connectionString?: string };
}

/**
 * How a PrismaClient reaches its database, as options for `createRelay` and `migrate`: they have connections of their own.
 * Only the driver adapter `@prisma/adapter-pg` exposes it. Throws POSTCOMMIT_E_BAD_OPTION for a client with another one,
 * without one, or with Accelerate: pass `connectionString` to the relay there. Behind a pooler such as PgBouncer pass it too,
 * because relays need a direct connection to be woken.
 *
 * @example
 * import { createRelay } from 'postcommit';
 * import { connectionOf } from 'postcommit/prisma';
 *
 * const relay = createRelay({ ...connectionOf(prisma), handlers: { 'order.created': { log: console.log } } });
 */
export function connectionOf(prisma: object): ConnectionOptions {
  const { _engineConfig } = prisma as { _engineConfig?: { adapter?: AdapterInside } };
  const adapter = _engineConfig?.adapter;
  const config = adapter?.config;
  if (adapter?.adapterName !== '@prisma/adapter-pg' || typeof config !== 'object' || config === null) {
    const name = typeof adapter?.adapterName === 'string' ? `the driver adapter ${adapter.adapterName}` : 'no such';
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      `connectionOf() needs a PrismaClient with the driver adapter @prisma/adapter-pg, and this one has ${name}. Pass connectionString instead.`,
    );
  }
  const { connectionString } = config;
  // The URL counts before the other fields of the pool.
  const inUrl = new Set<string>(connectionString === undefined ? [] : fieldsOfUrl(connectionString));
  const entries = sharedPoolSettings.flatMap((field) => {
    const value = config[field];
    return value === undefined || value === null || inUrl.has(field) ? [] : [[field, value] as const];
  });
  const connection: ConnectionConfig = Object.fromEntries(entries);
  return {
    ...(connectionString !== undefined && { connectionString }),
    ...(entries.length > 0 && { connection }),
  };
}

/** The same, or `undefined` where the client does not expose it. */
export function knownConnection(prisma: object): ConnectionOptions | undefined {
  try {
    return connectionOf(prisma);
  } catch {
    return undefined;
  }
}
