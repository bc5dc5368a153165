import { decoded, readServerUrl } from '../server-url.ts';

/** What a URL of Redis says, as options of node-redis. */
export interface RedisAddress {
  readonly socket: { host?: string; port?: number; path?: string; tls: boolean };
  readonly username?: string;
  readonly password?: string;
  readonly database?: number;
}

/**
 * Reads a URL as node-redis does, or returns `undefined` where node-redis would throw. The client gets the parts: errors
 * of its own parser quote the URL, with the password.
 */
export function readRedisUrl(text: string): RedisAddress | undefined {
  if (text.startsWith('unix:')) return readUnixUrl(text);
  const url = readServerUrl(text, ['redis:', 'rediss:']);
  if (url === undefined) return undefined;
  const database = readDatabase(url.pathname.slice(1));
  if (database === undefined) return undefined;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const socket = { host, ...(url.port !== '' && { port: Number(url.port) }), tls: url.protocol === 'rediss:' };
  return { socket, ...login(decoded(url.username), decoded(url.password)), ...database };
}

/** `unix://[user[:password]@]/path/to/socket[?db=0]`. */
function readUnixUrl(text: string): RedisAddress | undefined {
  const [, username = '', password = '', path = '', query = ''] =
    /^unix:\/\/(?:([^:@/]*)(?::([^@/]*))?@)?(\/[^?#]+)(?:\?([^#]*))?(?:#.*)?$/.exec(text) ?? [];
  const parts = [username, password, path].map(decoded);
  const database = readDatabase(new URLSearchParams(query).get('db') ?? '');
  if (path === '' || parts.includes(undefined) || database === undefined) return undefined;
  return { socket: { path: parts[2] as string, tls: false }, ...login(parts[0], parts[1]), ...database };
}

function readDatabase(text: string): { database?: number } | undefined {
  if (text === '') return {};
  return /^\d{1,9}$/.test(text) ? { database: Number(text) } : undefined;
}

function login(username = '', password = ''): { username?: string; password?: string } {
  return { ...(username !== '' && { username }), ...(password !== '' && { password }) };
}
