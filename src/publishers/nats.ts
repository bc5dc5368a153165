import { isIPv6 } from 'node:net';
import type { Authenticator, ConnectionOptions, TlsOptions } from '@nats-io/transport-node';
import { PostcommitError } from '../errors.ts';
import { connectionPublisher } from './connection-publisher.ts';
import { isUntrustedCertificate, reasonOf } from './failure.ts';
import { importClient } from './import-client.ts';
import { connectNats } from './nats/connect.ts';
import { JetstreamConnection } from './nats/connection.ts';
import { toNats } from './nats/message.ts';
import type { Publisher } from './publisher.ts';
import { readOptions } from './publisher-options.ts';
import { readServerUrl } from './server-url.ts';

export type {
  JetstreamConsumer,
  JetstreamIncoming,
  JetstreamMessages,
  NatsConsumerOptions,
} from '../consumers/nats.ts';
export { consumeNats } from '../consumers/nats.ts';

/** Options of `nats()`. */
export interface NatsOptions {
  /** `host:port`, `nats://host:4222`, or several of them: of one cluster. User and password are options of their own. */
  servers: string | string[];
  /** The user to log in as, with `pass`. */
  user?: string;
  pass?: string;
  /** Instead of `user` and `pass`. */
  token?: string;
  /** Other ways to log in, made by the client, e.g. `credsAuthenticator(bytes)` or `nkeyAuthenticator(seed)`. */
  authenticator?: Authenticator | Authenticator[];
  /** TLS: `ca` or `caFile`, `cert`, `key`, `handshakeFirst`. `{}` insists on TLS with the usual authorities. */
  tls?: TlsOptions;
  /** The JetStream domain. Default: that of the server. */
  domain?: string;
  /** The prefix of reply subjects, where the user may not use `_INBOX`. */
  inboxPrefix?: string;
  /** Messages sent and not yet acknowledged at most. Default 256. */
  inFlightMax?: number;
  /** Milliseconds for a stream to acknowledge a message. Default 5,000. */
  ackTimeoutMs?: number;
  /** Milliseconds for a server to accept the connection and the login. Default 10,000. */
  connectTimeoutMs?: number;
  /** Milliseconds between pings. A connection without an answer to two of them is dead. Default 10,000. */
  pingIntervalMs?: number;
  /** Shown in the server's list of connections. Default `postcommit`. */
  connectionName?: string;
}

/**
 * Publishes to NATS JetStream and waits for the stream's acknowledgement. The topic of a message is its subject, its
 * deduplication id the `Nats-Msg-Id`: a stream drops an id that it has stored within its duplicate window.
 *
 * @example
 * import { nats } from 'postcommit/nats';
 *
 * const events = nats({ servers: 'nats.internal:4222', user: 'relay', pass: 'secret' });
 */
export function nats(options: NatsOptions): Publisher {
  const resolved = resolveOptions(options);
  return connectionPublisher({
    kind: 'nats',
    broker: 'NATS',
    inFlightMax: resolved.inFlightMax,
    batchesInFlightMax: 4,
    connectTimeoutMs: resolved.connectTimeoutMs,
    // The acknowledgement, and then the question whether there is a stream at all.
    answerMsMax: 2 * resolved.ackTimeoutMs,
    capabilities: { deduplicates: true, cloudEventsPrefix: 'ce-' },
    connect: (signal) => openConnection(resolved, signal),
    prepare: (message, connection) => toNats(message, connection.createHeaders),
  });
}

const both = { install: '@nats-io/transport-node @nats-io/jetstream' };

async function openConnection(options: ResolvedOptions, signal: AbortSignal): Promise<JetstreamConnection> {
  const [{ connect, headers }, { jetstream }] = await Promise.all([
    importClient('@nats-io/transport-node', () => import('@nats-io/transport-node'), both),
    importClient('@nats-io/jetstream', () => import('@nats-io/jetstream'), both),
  ]);
  try {
    const connection = await connectNats(connect, { ...options.connection, servers: [...options.servers] }, signal);
    const client = jetstream(connection, { timeout: options.ackTimeoutMs, ...options.jetstream });
    return new JetstreamConnection(connection, client, await client.jetstreamManager(false), headers);
  } catch (error) {
    if (!isRefusal(error)) throw error;
    throw new PostcommitError('POSTCOMMIT_E_DESTINATION_REFUSED', `NATS: ${reasonOf(error)}`, { cause: error });
  }
}

/** Whether waiting does not help. */
function isRefusal(error: unknown): boolean {
  const { name, message, code } = error as NodeJS.ErrnoException;
  if (name === 'AuthorizationError' || name === 'UserAuthenticationExpiredError') return true;
  if (isUntrustedCertificate(error) || code?.startsWith('ERR_SSL_')) return true;
  return name === 'ConnectionError' && message.includes("does not support 'tls'");
}

/** The port may be missing, and an IPv6 address may come without brackets. */
function isServer(server: string): boolean {
  const bare = server.replace(/^(?:nats|tls):\/\//i, '').replace(/\/$/, '');
  if (/[/?#\\]/.test(bare)) return false;
  return readServerUrl(`nats://${isIPv6(bare) ? `[${bare}]` : bare}`, ['nats:']) !== undefined;
}

type ResolvedOptions = ReturnType<typeof resolveOptions>;

function resolveOptions(given: NatsOptions) {
  const { whole, text, fail } = readOptions('nats', given, [
    'servers',
    'user',
    'pass',
    'token',
    'authenticator',
    'tls',
    'domain',
    'inboxPrefix',
    'inFlightMax',
    'ackTimeoutMs',
    'connectTimeoutMs',
    'pingIntervalMs',
    'connectionName',
  ]);
  const servers = Array.isArray(given.servers) ? given.servers : [given.servers];
  if (servers.length === 0 || servers.some((server) => typeof server !== 'string' || server === '')) {
    throw fail('servers must be an address, or a list of them.');
  }
  if (servers.some((server) => /^wss?:/i.test(server))) throw fail('servers cannot be reached over WebSockets.');
  // The client would take a part of the password for the port, and log in without it. No text that was given: it may
  // hold a password.
  if (servers.some((server) => server.includes('@'))) {
    throw fail('servers cannot hold a user or a password: give user and pass, or token.');
  }
  if (!servers.every(isServer)) throw fail('servers must be host:port or nats://host:port each.');
  const connectTimeoutMs = whole('connectTimeoutMs', 10_000, 1, 600_000);
  const domain = text('domain');
  const connection: ConnectionOptions = {
    name: text('connectionName') ?? 'postcommit',
    timeout: connectTimeoutMs,
    pingInterval: whole('pingIntervalMs', 10_000, 100, 600_000),
    // A new connection is opened for the next batch. The client's own reconnect would keep unsent messages and send them
    // after their outcome was returned, and it stops for good after some attempts.
    reconnect: false,
    // They cost a stack trace per message.
    noAsyncTraces: true,
  };
  for (const name of ['user', 'pass', 'token', 'inboxPrefix'] as const) {
    const value = text(name);
    if (value !== undefined) connection[name] = value;
  }
  if (given.authenticator) connection.authenticator = given.authenticator;
  if (given.tls) connection.tls = given.tls;
  return {
    servers,
    connection,
    jetstream: domain === undefined ? {} : { domain },
    inFlightMax: whole('inFlightMax', 256, 1, 10_000),
    ackTimeoutMs: whole('ackTimeoutMs', 5_000, 1, 600_000),
    connectTimeoutMs,
  };
}
