import type { ConnectionConfig, ConnectionOptions } from '../../database/connection-options.ts';
import { fieldsOfUrl } from '../../database/url-fields.ts';
import { sharedPoolSettings } from '../pool-settings.ts';

/**
 * How a `pg` pool, or anything with its `options`, connects. `undefined` if it does not name a host and a database: `pg` then takes
 * them from the environment, and a relay must not guess.
 */
export function connectionOf(pool: object): ConnectionOptions | undefined {
  const { options } = pool as { options?: Record<string, unknown> };
  if (typeof options !== 'object' || options === null) return undefined;
  const { connectionString } = options;
  // In pg the URL wins over fields beside it; Postcommit refuses such fields.
  const ofUrl: readonly string[] = typeof connectionString === 'string' ? fieldsOfUrl(connectionString) : [];
  const given = sharedPoolSettings.filter(
    (name) => options[name] !== undefined && options[name] !== null && !ofUrl.includes(name),
  );
  const connection = Object.fromEntries(given.map((name) => [name, options[name]])) as ConnectionConfig;
  if (typeof connection.port === 'string') connection.port = Number(connection.port);
  if (typeof connectionString === 'string') {
    return given.length > 0 ? { connectionString, connection } : { connectionString };
  }
  const isNamed =
    (connection.host !== undefined || connection.stream !== undefined) && connection.database !== undefined;
  return isNamed ? { connection } : undefined;
}
