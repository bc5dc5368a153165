import type { ConnectionOptions } from 'node:tls';
import { shown } from '../../format.ts';
import { readOptions } from '../publisher-options.ts';
import { isHostPort } from '../server-url.ts';
import { type KafkaProducer, refuseProducer } from './custom-producer.ts';
import type { KafkaCompression, KafkaConnection, KafkaSasl } from './port.ts';

/** Options of `kafka`: `brokers` for a producer made here, or `producer` for one of yours. */
export interface KafkaOptions {
  /** The cluster: `host:port` of one broker or several. */
  brokers?: readonly string[];
  /** Which client to use; its package must be installed. Default `kafkajs`. */
  client?: 'kafkajs' | 'confluent' | 'platformatic';
  /** How the broker's logs and quotas name this relay. Default `postcommit`. */
  clientId?: string;
  /** `true` for TLS with the system's certificates, or the options of `tls.connect`. Default: no TLS. */
  ssl?: boolean | ConnectionOptions;
  /** How to log in, e.g. `{ mechanism: 'scram-sha-512', username, password }`. Default: not at all. */
  sasl?: KafkaSasl;
  /** kafkajs brings gzip; register a codec with it for the others. Default `none`. */
  compression?: KafkaCompression;
  /** Whether a topic that does not exist may be created, if the broker does that. Default `true`. */
  autoCreateTopics?: boolean;
  /** Milliseconds for a connection to be made. Default 10,000. */
  connectTimeoutMs?: number;
  /** Milliseconds for a request to be answered. Default 30,000. */
  requestTimeoutMs?: number;
  /**
   * Bytes of a record with its batch's head, as the broker's `max.message.bytes` counts them; one that is larger becomes
   * a dead letter without being sent. Default 1,048,588, the broker's own default; with compression, which the broker
   * counts after it, ten times that.
   */
  messageBytesMax?: number;
  /** Messages per batch. Larger is faster and repeats more after a crash. Default 1,000. */
  batchSizeMax?: number;
  /** Batches in flight, each over a producer of its own. Default 2. Always 1 if `producer` is a producer; a function keeps the limit. */
  batchesInFlightMax?: number;
  /** Further options for the client, in its own format: for kafkajs those of `new Kafka()`. They override ours. */
  clientOptions?: Readonly<Record<string, unknown>>;
  /**
   * A producer of yours (it is connected if it is not, and never closed here), or a function that makes one (which is
   * closed here, and replaced after a failure). An idempotent producer of kafkajs must come from a
   * function.
   */
  producer?: KafkaProducer | (() => KafkaProducer | Promise<KafkaProducer>);
}

const connectionNames = [
  'brokers',
  'client',
  'clientId',
  'ssl',
  'sasl',
  'autoCreateTopics',
  'connectTimeoutMs',
  'requestTimeoutMs',
  'clientOptions',
] as const;
const names = [
  ...connectionNames,
  'compression',
  'messageBytesMax',
  'batchSizeMax',
  'batchesInFlightMax',
  'producer',
] as const;
const compressions = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;
const clients = ['kafkajs', 'confluent', 'platformatic'] as const;
const brokerMessageBytesMax = 1_048_588;

export type ResolvedKafkaOptions = ReturnType<typeof resolveKafkaOptions>;

export function resolveKafkaOptions(given: KafkaOptions) {
  const read = readOptions('kafka', given, names);
  const oneOf = <T extends string>(name: 'client' | 'compression', fallback: T, allowed: readonly T[]): T => {
    const value = (given[name] as T | undefined) ?? fallback;
    if (!allowed.includes(value)) throw read.fail(`${name} must be one of ${allowed.join(', ')}. Got ${shown(value)}.`);
    return value;
  };
  const { producer } = given;
  if (producer === undefined) checkBrokers(given.brokers, read.fail);
  else {
    const useless = connectionNames.find((name) => given[name] !== undefined);
    if (useless !== undefined) throw read.fail(`${useless} has no effect when a producer is given.`);
    const refusal = typeof producer === 'function' ? undefined : refuseProducer(producer, false);
    if (refusal !== undefined) throw read.fail(refusal);
  }
  const { ssl, sasl, clientOptions = {} } = given;
  if (ssl !== undefined && typeof ssl !== 'boolean' && !isObject(ssl))
    throw read.fail('ssl must be true or an object.');
  if (sasl !== undefined && !(isObject(sasl) && typeof sasl.mechanism === 'string')) {
    throw read.fail('sasl must be an object with a mechanism, e.g. plain, scram-sha-256 or scram-sha-512.');
  }
  if (!isObject(clientOptions)) throw read.fail('clientOptions must be an object.');
  const compression = oneOf('compression', 'none', compressions);
  const messageBytesMax = read.whole(
    'messageBytesMax',
    compression === 'none' ? brokerMessageBytesMax : 10 * brokerMessageBytesMax,
    1_024,
    1_000_000_000,
  );
  const isShared = producer !== undefined && typeof producer !== 'function';
  const connection: KafkaConnection = {
    brokers: given.brokers ?? [],
    clientId: read.text('clientId') ?? 'postcommit',
    ssl,
    sasl,
    compression,
    connectTimeoutMs: read.whole('connectTimeoutMs', 10_000, 100, 600_000),
    requestTimeoutMs: read.whole('requestTimeoutMs', 30_000, 100, 600_000),
    autoCreateTopics: read.flag('autoCreateTopics', true),
    messageBytesMax,
    clientOptions,
  };
  return {
    client: oneOf('client', 'kafkajs', clients),
    connection,
    producer,
    messageBytesMax,
    batchSizeMax: read.whole('batchSizeMax', 1_000, 1, 10_000),
    batchesInFlightMax: isShared ? 1 : read.whole('batchesInFlightMax', 2, 1, 10),
  };
}

function checkBrokers(brokers: unknown, fail: (detail: string) => Error): void {
  if (Array.isArray(brokers) && brokers.length > 0 && brokers.every(isHostPort)) return;
  // Without the text that was given: it may hold a password.
  throw fail("brokers must be a list of host:port, e.g. ['kafka-1:9092']; or give a producer.");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
