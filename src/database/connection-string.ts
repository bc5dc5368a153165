import pg from 'pg';
import { PostcommitError } from '../errors.ts';

/**
 * Which sessions will do, in the words of libpq's `target_session_attrs`. `primary`: the server is no standby. `read-write`:
 * nor are transactions read-only by default. `any`: a standby too, for commands that only read.
 */
export type SessionAttributes = 'primary' | 'read-write' | 'any';

const sessionAttributes: readonly SessionAttributes[] = ['primary', 'read-write', 'any'];

/** One server that a connection string names. */
export interface Server {
  /** `host:port`, for messages. */
  address: string;
  /** For `pg`, which knows neither lists of hosts nor `target_session_attrs`. */
  connectionString: string;
}

/** The servers to try, in this order, and which sessions will do. */
export interface ServerList {
  servers: readonly Server[];
  attributes: SessionAttributes;
}

/**
 * Reads a connection string, also one with several hosts as libpq writes it:
 * `postgres://user:password@a:5432,b:5432/database?target_session_attrs=read-write`.
 *
 * Refuses what `pg` would misread: a URL of another kind, or `host=… dbname=…`, ends at whatever database it finds on
 * this host. The message never quotes the text, which may hold a password.
 */
export function parseConnectionString(text: unknown): ServerList {
  if (typeof text !== 'string') throw malformed();
  const url = /^(postgres(?:ql)?:\/\/)([^/?#]*)(.*)$/is.exec(text);
  if (url === null) {
    // A path is a Unix socket.
    if (!/^(socket:\/)?\//i.test(text)) throw malformed();
    return { servers: [toServer(text)], attributes: 'primary' };
  }
  const [, scheme = '', authority = '', rest = ''] = url;
  const hostsAt = authority.lastIndexOf('@') + 1;
  const hosts = authority.slice(hostsAt).split(',');
  const query = new URLSearchParams(/\?([^#]*)/.exec(rest)?.[1]);
  const named = [...query.getAll('host'), ...query.getAll('port')];
  if (hosts.length > 1 ? named.length > 0 || hosts.includes('') : named.some((value) => value.includes(','))) {
    throw refuse(
      'connectionString with several hosts must list them before the database, each with its port: postgres://user:password@a:5432,b:5432/database.',
    );
  }
  const servers = hosts.map((host) => toServer(`${scheme}${authority.slice(0, hostsAt)}${host}${rest}`));
  return { servers, attributes: attributesOf(query, servers.length > 1 ? 'read-write' : 'primary') };
}

/** The same for what writes. */
export function parseForWriting(text: unknown): ServerList {
  const { servers, attributes } = parseConnectionString(text);
  return { servers, attributes: attributes === 'any' ? 'primary' : attributes };
}

export function checkConnectionString(text: unknown): string {
  parseConnectionString(text);
  return text as string;
}

function attributesOf(query: URLSearchParams, fallback: SessionAttributes): SessionAttributes {
  const given = query.get('target_session_attrs') ?? fallback;
  const known = sessionAttributes.find((each) => each === given);
  if (known !== undefined) return known;
  throw refuse(`target_session_attrs in connectionString must be one of ${sessionAttributes.join(', ')}.`);
}

function toServer(connectionString: string): Server {
  try {
    const { host, port } = new pg.Client({ connectionString });
    return { address: host.startsWith('/') ? host : `${host}:${port}`, connectionString };
  } catch {
    // An invalid port, or characters in the password that a URL cannot hold.
    throw malformed();
  }
}

function malformed(): PostcommitError {
  return refuse(
    'connectionString must be a PostgreSQL URL, e.g. postgres://user:password@host:5432/database, or postgres://user:password@a:5432,b:5432/database for several hosts, with special characters percent-encoded.',
  );
}

function refuse(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
