import pg from 'pg';
import { PostcommitError } from '../errors.ts';

/**
 * Which servers are suitable, as in libpq's `target_session_attrs`. `primary`: one that is not a standby. `read-write`: one
 * whose transactions are not read-only by default either. `any`: also a standby, for commands that only read.
 */
export type SessionAttributes = 'primary' | 'read-write' | 'any';

const sessionAttributes: readonly SessionAttributes[] = ['primary', 'read-write', 'any'];

/** One server to connect to. */
export interface Server {
  /** `host:port`, for messages. */
  address: string;
  /** For `pg`, which knows neither lists of hosts nor `target_session_attrs`. It may contain a password. */
  config: pg.ClientConfig;
}

/** The servers to try, in this order, and which of them are suitable. */
export interface ServerList {
  servers: readonly Server[];
  attributes: SessionAttributes;
}

/** What `urlWithoutPassword` writes in place of a password, of a parameter that is one, or of a text that is no URL. */
const hiddenPassword = /^\*\*\*$|^[^:]*:\/\/[^:]*:\*\*\*@|[?&][^=&]*password[^=&]*=\*\*\*(?:&|$)/i;

/**
 * Reads a connection string, also one with several hosts as libpq writes it:
 * `postgres://user:password@a:5432,b:5432/database?target_session_attrs=read-write`.
 *
 * Refuses what `pg` would misread: with another kind of URL, or with `host=… dbname=…`, it would connect to whatever database
 * it finds on this host. The message never quotes the text, which may contain a password.
 */
export function parseConnectionString(text: unknown): ServerList {
  if (text === '') throw refuse('connectionString is empty. Is its environment variable set?');
  if (typeof text !== 'string') throw malformed();
  if (hiddenPassword.test(text)) {
    throw refuse(
      'connectionString has *** for a password: the password was hidden when this command was printed. Replace *** with it, or set DATABASE_URL. A password that is *** is written %2A%2A%2A.',
    );
  }
  const url = /^(postgres(?:ql)?:\/\/)([^/?#]*)(.*)$/is.exec(text);
  if (url === null) {
    // A path is a Unix socket.
    if (!/^(socket:\/)?\//i.test(text)) throw malformed();
    return { servers: [serverOf({ connectionString: text })], attributes: 'primary' };
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
  const servers = hosts.map((host) =>
    serverOf({ connectionString: `${scheme}${authority.slice(0, hostsAt)}${host}${rest}` }),
  );
  return { servers, attributes: attributesOf(query, servers.length > 1 ? 'read-write' : 'primary') };
}

/**
 * The config with the URL taken apart. `pg` prefers a URL to the fields beside it, even where the URL is silent: it would
 * ignore a password function beside a URL without a password.
 */
export function expandUrl({ config }: Server): pg.ClientConfig {
  const { connectionParameters: all } = new pg.Client(config) as unknown as {
    connectionParameters: Record<string, unknown>;
  };
  const names = ['host', 'port', 'database', 'user', 'password', 'ssl', 'sslnegotiation', 'options'];
  const timeouts = ['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout'];
  const set = [...names, ...timeouts].filter((name) => all[name] !== undefined && all[name] !== null);
  return Object.fromEntries(set.map((name) => [name, all[name]]));
}

function attributesOf(query: URLSearchParams, fallback: SessionAttributes): SessionAttributes {
  const given = query.get('target_session_attrs') ?? fallback;
  const known = sessionAttributes.find((each) => each === given);
  if (known !== undefined) return known;
  throw refuse(`target_session_attrs in connectionString must be one of ${sessionAttributes.join(', ')}.`);
}

/** Checks what `pg` makes of a config, without connecting. */
export function serverOf(config: pg.ClientConfig): Server {
  try {
    const { host, port } = new pg.Client(config);
    return { address: host.startsWith('/') ? host : `${host}:${port}`, config };
  } catch {
    // An invalid port, or characters in the password that are not valid in a URL.
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
