import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { PostcommitError } from '../../errors.ts';
import { importClient } from '../import-client.ts';
import { type AnsweredPartition, missingFrom } from './answer.ts';
import { refusedRecords } from './platformatic-refusal.ts';
import {
  type KafkaConnection,
  type KafkaPartition,
  type KafkaPort,
  type KafkaRecord,
  PartitionsRefused,
} from './port.ts';
import { cutSocket } from './socket.ts';

/** The part of a `@platformatic/kafka` producer that is used here. */
export interface PlatformaticProducer {
  send(options: never): Promise<unknown>;
  metadata(options: never): Promise<unknown>;
  initIdempotentProducer(options: never): Promise<unknown>;
  close(force?: boolean): Promise<unknown>;
}

interface Calls {
  send(options: {
    messages: object[];
    acks: number;
    repeatOnStaleMetadata: boolean;
  }): Promise<{ offsets?: readonly AnsweredPartition[] }>;
  metadata(options: { topics: string[]; autocreateTopics?: boolean; forceUpdate?: boolean }): Promise<Metadata>;
  initIdempotentProducer(options: object): Promise<unknown>;
  close(force: boolean): Promise<unknown>;
  clearMetadata(): void;
  connections?: Iterable<[string, { socket?: Socket }]>;
}

interface Metadata {
  topics: Map<string, { partitions: { leader: number }[] } | undefined>;
}

// A topic that is being created is unknown for a moment.
const creationDelaysMs = [50, 100, 200, 400];
// The broker that leads a partition from now on may not know it yet.
const leaderMoveDelaysMs = [50, 200, 400];

/** What is used here and earlier versions lack. */
const nodeVersionMin = [22, 22] as const;

export async function platformaticPort(connection: KafkaConnection): Promise<KafkaPort> {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < nodeVersionMin[0] || (major === nodeVersionMin[0] && minor < nodeVersionMin[1])) {
    const detail = `kafka: client 'platformatic' needs Node ${nodeVersionMin.join('.')} or later, and this is ${process.version}.`;
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
  }
  const name = '@platformatic/kafka';
  const { Producer } = (await importClient(name, () => import(name as string))) as {
    Producer: new (options: object) => PlatformaticProducer;
  };
  const { sasl, ssl } = connection;
  const producer = new Producer({
    clientId: connection.clientId,
    bootstrapBrokers: [...connection.brokers],
    idempotent: true,
    // The least that it does not take for "without end".
    retries: 2,
    retryDelay: 100,
    timeout: connection.requestTimeoutMs,
    requestTimeout: connection.requestTimeoutMs,
    connectTimeout: connection.connectTimeoutMs,
    compression: connection.compression,
    autocreateTopics: connection.autoCreateTopics,
    ...(ssl && { tls: ssl === true ? {} : ssl }),
    ...(sasl && { sasl: { ...sasl, mechanism: String(sasl.mechanism).toUpperCase() } }),
    ...connection.clientOptions,
  });
  return new PlatformaticPort(producer, { owned: true, autoCreateTopics: connection.autoCreateTopics });
}

/**
 * After a failed request it takes a new producer id, so the broker does not recognise records that were stored and are sent
 * again. But its errors carry the broker's answer for each partition: only those that were refused are sent again.
 */
export class PlatformaticPort implements KafkaPort {
  readonly resendsSafely = true;
  readonly #producer: Calls;
  readonly #owned: boolean;
  readonly #autoCreateTopics: boolean;
  #pending: Promise<unknown> = Promise.resolve();

  constructor(producer: PlatformaticProducer, { owned = false, autoCreateTopics = true } = {}) {
    this.#producer = producer as unknown as Calls;
    this.#owned = owned;
    this.#autoCreateTopics = autoCreateTopics;
  }

  async open(): Promise<void> {
    await this.#producer.initIdempotentProducer({});
  }

  async partitionsOf(topic: string): Promise<readonly KafkaPartition[]> {
    for (const delayMs of [...creationDelaysMs, undefined]) {
      try {
        const { topics } = await this.#producer.metadata({ topics: [topic], autocreateTopics: this.#autoCreateTopics });
        return (topics.get(topic)?.partitions ?? []).map(({ leader }, partition) => ({ partition, leader }));
      } catch (error) {
        // The client reports it as text, without the protocol's error code.
        const isUnknown = error instanceof Error && error.message.startsWith('Unknown topic');
        if (isUnknown && (delayMs === undefined || !this.#autoCreateTopics)) {
          throw Object.assign(new Error(error.message, { cause: error }), { apiCode: 3 });
        }
        if (!isUnknown || delayMs === undefined) throw error;
        await sleep(delayMs);
      }
    }
    return [];
  }

  async send(records: readonly KafkaRecord[]): Promise<void> {
    const failed = new Map<KafkaRecord, unknown>();
    let left = records;
    for (const delayMs of [...leaderMoveDelaysMs, undefined]) {
      const errors = await this.#sendOnce(left);
      left = left.filter((record) => delayMs !== undefined && hasMoved(errors.get(record)));
      for (const [record, error] of errors) failed.set(record, error);
      for (const record of left) failed.delete(record);
      if (left.length === 0) break;
      await sleep(delayMs);
      this.#producer.clearMetadata();
    }
    if (failed.size > 0) throw new PartitionsRefused(failed);
  }

  /** Why each record that was not stored was not; rejects if that is not known. */
  async #sendOnce(records: readonly KafkaRecord[]): Promise<Map<KafkaRecord, unknown>> {
    const messages = records.map(({ topic, partition, key, value, headers }) => ({
      topic,
      partition,
      ...(key !== null && { key: Buffer.from(key) }),
      value: Buffer.isBuffer(value) ? value : Buffer.from(value),
      headers: new Map(Object.entries(headers).map(([name, text]) => [Buffer.from(name), Buffer.from(text)])),
    }));
    // It would read the metadata again and throw, where only the process can catch it, if the partition is gone by then.
    const sent = this.#producer.send({ messages, acks: -1, repeatOnStaleMetadata: false });
    this.#pending = sent.catch(() => {});
    try {
      const { offsets = [] } = await sent;
      return missingFrom(offsets, records);
    } catch (error) {
      const failed = refusedRecords(error, records);
      if (failed === undefined) throw error;
      return failed;
    }
  }

  async ping(): Promise<void> {
    await this.#producer.metadata({ topics: [], forceUpdate: true });
  }

  async discard(): Promise<void> {
    if (!this.#owned) {
      await this.#pending;
      // The caller keeps this producer, and it would continue with the partitions that it knows.
      this.#producer.clearMetadata();
      return;
    }
    for (const [, { socket }] of this.#producer.connections ?? []) if (socket) cutSocket(socket);
    await this.close();
  }

  async close(): Promise<void> {
    if (this.#owned) await this.#producer.close(true).catch(() => {});
  }
}

/** The broker does not lead the partition, so it has stored nothing of it. */
function hasMoved(error: unknown): boolean {
  const { apiCode } = (error ?? {}) as { apiCode?: unknown };
  return apiCode === 5 || apiCode === 6 || apiCode === 74;
}
