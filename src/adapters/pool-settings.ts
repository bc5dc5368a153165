import type { ConnectionConfig } from '../database/connection-options.ts';

/** The settings of a `pg` pool that a relay needs too. The others (its size, its timeouts) are the pool's own business. */
export const sharedPoolSettings = [
  'host',
  'port',
  'database',
  'user',
  'password',
  'ssl',
  'sslnegotiation',
  'enableChannelBinding',
  'options',
  'keepAliveInitialDelayMillis',
  'stream',
] as const satisfies readonly (keyof ConnectionConfig)[];
