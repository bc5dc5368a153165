import type { ConnectionOptions } from 'node:tls';
import type { Options } from 'amqplib';
import { PostcommitError } from '../errors.ts';
import { connectionPublisher } from './connection-publisher.ts';
import { cutReason, isUntrustedCertificate, reasonOf } from './failure.ts';
import { importClient } from './import-client.ts';
import type { Publisher } from './publisher.ts';
import { readOptions } from './publisher-options.ts';
import { RabbitmqConnection } from './rabbitmq/connection.ts';
import { toAmqp } from './rabbitmq/message.ts';
import { isPort, readServerUrl } from './server-url.ts';

export type { AmqpChannel, AmqpConnection, AmqpIncoming, RabbitmqConsumerOptions } from '../consumers/rabbitmq.ts';
export { consumeRabbitmq } from '../consumers/rabbitmq.ts';

/** Options of `rabbitmq()`. */
export interface RabbitmqOptions {
  /**
   * The address of RabbitMQ: `amqp://user:password@host:5672/vhost`, `amqps://…` for TLS, or the same as an object
   * (`{ protocol, hostname, port, username, password, vhost }`).
   */
  url: string | Options.Connect;
  /** TLS for `amqps`: `ca`, `cert`, `key`, `servername` and whatever else `tls.connect` of Node.js takes. */
  tls?: Omit<ConnectionOptions, 'timeout'>;
  /** Another way to log in than by user and password, made by amqplib, e.g. `credentials.external()`. */
  credentials?: { mechanism: string; response(): Buffer };
  /** The exchange of messages whose route names none. Default `''`, the default exchange: the topic is a queue's name. */
  exchange?: string;
  /** A message that reaches no queue has failed. Without it RabbitMQ drops such a message and confirms it. Default `true`. */
  mandatory?: boolean;
  /** Messages survive a restart of RabbitMQ, in durable queues. Default `true`. */
  persistent?: boolean;
  /** Messages sent and not yet confirmed at most. Default 1,000. */
  inFlightMax?: number;
  /**
   * A larger body is refused without being sent. Must not be above RabbitMQ's `max_message_size`: RabbitMQ closes the
   * channel over such a message. Default 16,777,216: that of RabbitMQ 4 (before, it was 134,217,728).
   */
  messageBytesMax?: number;
  /**
   * Milliseconds for RabbitMQ to confirm a message. One that it does not confirm, e.g. for a quorum queue without a
   * majority, fails alone. Default 5,000.
   */
  confirmTimeoutMs?: number;
  /** Milliseconds for RabbitMQ to accept the connection and the login. Default 10,000. */
  connectTimeoutMs?: number;
  /** Heartbeat in seconds. A connection without traffic for twice this time is dead. Default 10. */
  heartbeatSeconds?: number;
  /** Shown in RabbitMQ's list of connections. Default `postcommit`. */
  connectionName?: string;
}

/**
 * Publishes to RabbitMQ with publisher confirms. The topic of a message is its routing key, its exchange comes from the
 * route or the option; the event id is the message id.
 *
 * @example
 * import { rabbitmq } from 'postcommit/rabbitmq';
 *
 * const events = rabbitmq({ url: 'amqps://relay:secret@rabbit.internal/shop', exchange: 'events' });
 */
export function rabbitmq(options: RabbitmqOptions): Publisher {
  const resolved = resolveOptions(options);
  return connectionPublisher({
    kind: 'rabbitmq',
    broker: 'RabbitMQ',
    inFlightMax: resolved.inFlightMax,
    batchesInFlightMax: 8,
    connectTimeoutMs: resolved.connectTimeoutMs,
    // Twice: a message that may have closed its channel is sent again alone.
    answerMsMax: 2 * resolved.confirmTimeoutMs,
    capabilities: { deduplicates: false, cloudEventsPrefix: 'cloudEvents_' },
    connect: (signal) => RabbitmqConnection.open((socket) => dial(resolved, socket), resolved.confirmTimeoutMs, signal),
    prepare: (message) => toAmqp(message, resolved),
  });
}

async function dial(options: ResolvedOptions, signal: AbortSignal) {
  const { connect } = await importClient('amqplib', () => import('amqplib'));
  signal.throwIfAborted();
  const socketOptions = {
    ...options.tls,
    ...(options.credentials && { credentials: options.credentials }),
    noDelay: true,
    keepAlive: true,
    clientProperties: { connection_name: options.connectionName },
    // Not in amqplib's types, but it hands everything on to Node.js, which destroys the socket with it.
    signal,
  };
  try {
    return await connect(options.url, socketOptions);
  } catch (error) {
    const refusal = refusalOf(error);
    if (refusal === undefined) throw error;
    throw new PostcommitError('POSTCOMMIT_E_DESTINATION_REFUSED', `RabbitMQ: ${cutReason(refusal)}`, { cause: error });
  }
}

/** Why the broker refuses, where waiting does not help. */
function refusalOf(error: unknown): string | undefined {
  const words = reasonOf(error);
  // amqplib drops the broker's text: it only reports that the broker closed the connection.
  if (/Expected ConnectionOpenOk; got <ConnectionClose/.test(words)) {
    return 'the virtual host does not exist, or this user may not use it.';
  }
  const { code } = error as NodeJS.ErrnoException;
  const isRefused = /ACCESS[-_]REFUSED|SASL mechanism \S+ is not provided/.test(words) || isUntrustedCertificate(error);
  return isRefused || code?.startsWith('ERR_SSL_') ? words : undefined;
}

type ResolvedOptions = ReturnType<typeof resolveOptions>;

function resolveOptions(given: RabbitmqOptions) {
  const { whole, flag, text, fail } = readOptions('rabbitmq', given, [
    'url',
    'tls',
    'credentials',
    'exchange',
    'mandatory',
    'persistent',
    'inFlightMax',
    'messageBytesMax',
    'confirmTimeoutMs',
    'connectTimeoutMs',
    'heartbeatSeconds',
    'connectionName',
  ]);
  const heartbeatSeconds = whole('heartbeatSeconds', 10, 1, 3_600);
  const { exchange = '' } = given;
  if (typeof exchange !== 'string' || Buffer.byteLength(exchange) > 255) {
    throw fail('exchange must be a name of at most 255 bytes.');
  }
  return {
    url: withHeartbeat(given.url, heartbeatSeconds, fail),
    tls: given.tls,
    credentials: given.credentials,
    exchange,
    mandatory: flag('mandatory', true),
    persistent: flag('persistent', true),
    inFlightMax: whole('inFlightMax', 1_000, 1, 10_000),
    messageBytesMax: whole('messageBytesMax', 16_777_216, 1, 536_870_912),
    confirmTimeoutMs: whole('confirmTimeoutMs', 5_000, 1, 600_000),
    connectTimeoutMs: whole('connectTimeoutMs', 10_000, 1, 600_000),
    connectionName: text('connectionName') ?? 'postcommit',
  };
}

function withHeartbeat(
  url: RabbitmqOptions['url'],
  heartbeat: number,
  fail: (detail: string) => PostcommitError,
): string | Options.Connect {
  if (typeof url === 'object' && url !== null) {
    const { protocol = 'amqp', hostname, port } = url;
    if (protocol !== 'amqp' && protocol !== 'amqps') throw fail('url.protocol must be amqp or amqps.');
    if (hostname !== undefined && (typeof hostname !== 'string' || !/^[^\s/@]+$/.test(hostname))) {
      throw fail('url.hostname must be the name or the address of a host.');
    }
    if (port !== undefined && !isPort(port)) throw fail('url.port must be a whole number from 1 to 65535.');
    return { heartbeat, ...url };
  }
  // Without the text that was given: it may hold a password.
  const parsed = readServerUrl(url, ['amqp:', 'amqps:']);
  if (parsed === undefined) {
    const form = 'amqp://user:password@host:5672/vhost or amqps://…';
    throw fail(`url must be ${form}, with special characters percent-encoded.`);
  }
  const number = numbersInUrl.find((name) => !/^\d*$/.test(parsed.searchParams.get(name) ?? ''));
  if (number !== undefined) throw fail(`url: ${number} must be a whole number.`);
  if (!parsed.searchParams.has('heartbeat')) parsed.searchParams.set('heartbeat', String(heartbeat));
  return parsed.href;
}

/** What amqplib reads from the query of a URL. */
const numbersInUrl = ['heartbeat', 'channelMax', 'frameMax', 'maxFrameSize'];
