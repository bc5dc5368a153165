import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Kafka, KafkaConfig, PartitionMetadata, Producer } from 'kafkajs';
import { PostcommitError } from '../../errors.ts';
import { importClient } from '../import-client.ts';
import { checkKafkajsAnswer } from './answer.ts';
import type { KafkaConnection, KafkaPartition, KafkaPort, KafkaRecord } from './port.ts';
import { cutSocket } from './socket.ts';

type Kafkajs = typeof import('kafkajs');

const partitionsMaxAgeMs = 60_000;

export async function kafkajsPort(connection: KafkaConnection): Promise<KafkaPort> {
  // With a handler for its failure, a bundler leaves an import that it cannot resolve to run time and does not fail:
  // a project that uses one of the other two clients has no kafkajs.
  const load = () => import('kafkajs').catch(rethrow);
  const module = await importClient('kafkajs', load);
  // It is a CommonJS package: with some loaders everything is below `default`.
  return new KafkajsPort((module as { default?: Kafkajs }).default ?? module, connection);
}

function rethrow(error: unknown): never {
  throw error;
}

/**
 * One idempotent kafkajs producer, with what kafkajs leaves out. kafkajs reuses the sequence numbers of a failed request,
 * even for partitions that were stored. The broker recognises the same records when they are sent again, but it would
 * confirm and drop other records in their place. So requests go one at a time, partitions are chosen here, and a producer
 * whose request failed is discarded. kafkajs cannot stop a request, so this port closes its sockets.
 */
class KafkajsPort implements KafkaPort {
  readonly resendsSafely = true;
  readonly #kafka: Kafka;
  readonly #producer: Producer;
  readonly #compression: number;
  readonly #sockets = new Set<Socket>();
  readonly #partitions = new Map<string, { partitions: readonly KafkaPartition[]; untilMs: number }>();
  #discarded = false;

  constructor(kafkajs: Kafkajs, connection: KafkaConnection) {
    this.#compression = compressionOf(kafkajs, connection);
    const config = {
      brokers: [...connection.brokers],
      clientId: connection.clientId,
      connectionTimeout: connection.connectTimeoutMs,
      requestTimeout: connection.requestTimeoutMs,
      logLevel: kafkajs.logLevel.NOTHING,
      // The relay handles outages. kafkajs only retries while a leader moves or a topic is being created.
      retry: { retries: 3, initialRetryTime: 100, maxRetryTime: 1_000 },
      ...(connection.ssl !== undefined && { ssl: connection.ssl }),
      // It writes into this object.
      ...(connection.sasl !== undefined && { sasl: { ...connection.sasl } }),
      ...connection.clientOptions,
      socketFactory: (options: SocketOptions) => this.#createSocket(options),
    };
    this.#kafka = new kafkajs.Kafka(config as KafkaConfig);
    this.#producer = this.#kafka.producer({
      idempotent: true,
      allowAutoTopicCreation: connection.autoCreateTopics,
      createPartitioner: () => choosePartition,
    });
  }

  open(): Promise<void> {
    return this.#producer.connect();
  }

  async partitionsOf(topic: string): Promise<readonly KafkaPartition[]> {
    const known = this.#partitions.get(topic);
    if (known !== undefined && known.untilMs > Date.now()) return known.partitions;
    const partitions = await this.#producer.send({ topic, messages: [{ value: null }] }).then(
      () => [],
      (error) => {
        if (error instanceof PartitionsSeen) return error.partitions;
        throw error;
      },
    );
    this.#partitions.set(topic, { partitions, untilMs: Date.now() + partitionsMaxAgeMs });
    return partitions;
  }

  async send(records: readonly KafkaRecord[]): Promise<void> {
    const byTopic = new Map<string, KafkaRecord[]>();
    for (const record of records) {
      const messages = byTopic.get(record.topic);
      if (messages) messages.push(record);
      else byTopic.set(record.topic, [record]);
    }
    const topicMessages = [...byTopic].map(([topic, messages]) => ({ topic, messages }));
    // Its types want `partition?: number`, ours has `number | undefined`.
    const batch = { acks: -1, compression: this.#compression, topicMessages } as SendBatch;
    checkKafkajsAnswer(await this.#producer.sendBatch(batch), records);
  }

  async ping(): Promise<void> {
    const admin = this.#kafka.admin();
    try {
      await admin.connect();
      await admin.describeCluster();
    } finally {
      await admin.disconnect().catch(() => {});
    }
  }

  async discard(): Promise<void> {
    this.#discarded = true;
    for (const socket of this.#sockets) cutOff(socket);
    this.#producer.disconnect().catch(() => {});
  }

  async close(): Promise<void> {
    await this.#producer.disconnect().catch(() => {});
    this.#discarded = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  #createSocket({ host, port, ssl, onConnect }: SocketOptions): Socket {
    if (this.#discarded) throw new Error('The producer was discarded.');
    const name = isIP(host) ? {} : { servername: host };
    const socket = ssl ? connectTls({ host, port, ...name, ...ssl }, onConnect) : connectTcp({ host, port }, onConnect);
    socket.setKeepAlive(true, 60_000);
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    return socket;
  }
}

type SendBatch = Parameters<Producer['sendBatch']>[0];

interface SocketOptions {
  host: string;
  port: number;
  ssl: object | undefined;
  onConnect: () => void;
}

function cutOff(socket: Socket): void {
  cutSocket(socket);
  // Only this event makes kafkajs reject what waits on the socket.
  socket.emit('error', new Error('No answer in time.'));
}

/**
 * kafkajs passes a topic's partitions to its partitioner only. For a record without a partition, the partitioner throws
 * them, before anything is sent.
 */
function choosePartition({ message, partitionMetadata }: PartitionerArguments): number {
  if (message.partition !== undefined) return message.partition;
  throw new PartitionsSeen(partitionMetadata.map(({ partitionId, leader }) => ({ partition: partitionId, leader })));
}

interface PartitionerArguments {
  message: { partition?: number };
  partitionMetadata: PartitionMetadata[];
}

class PartitionsSeen extends Error {
  readonly partitions: readonly KafkaPartition[];

  constructor(partitions: readonly KafkaPartition[]) {
    super('The partitions of the topic.');
    this.partitions = partitions;
  }
}

function compressionOf({ CompressionTypes, CompressionCodecs }: Kafkajs, { compression }: KafkaConnection): number {
  const types = {
    none: CompressionTypes.None,
    gzip: CompressionTypes.GZIP,
    snappy: CompressionTypes.Snappy,
    lz4: CompressionTypes.LZ4,
    zstd: CompressionTypes.ZSTD,
  };
  const type = types[compression];
  if (compression === 'none') return type;
  try {
    CompressionCodecs[type as keyof typeof CompressionCodecs]();
  } catch (cause) {
    const detail = `kafkajs has no codec for compression ${compression}: register one in its CompressionCodecs, or use gzip.`;
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail, { cause });
  }
  return type;
}
