import { setTimeout as sleep } from 'node:timers/promises';
import { cutReason, reasonOf, untilAborted } from './failure.ts';
import { confluentPort } from './kafka/confluent.ts';
import { customProducerPort, type KafkaProducer, refuseProducer } from './kafka/custom-producer.ts';
import { type AssignedRecord, KafkaDelivery, RoundSender, type TopicPartition } from './kafka/delivery.ts';
import { connectError, type KafkaFailure, kafkaFailure } from './kafka/failure.ts';
import { kafkajsPort } from './kafka/kafkajs.ts';
import { MissingTopics } from './kafka/missing-topics.ts';
import { type KafkaOptions, type ResolvedKafkaOptions, resolveKafkaOptions } from './kafka/options.ts';
import { partitionOfKey } from './kafka/partition.ts';
import { platformaticPort } from './kafka/platformatic.ts';
import type { KafkaCompression, KafkaPartition, KafkaPort, KafkaRecord, KafkaSasl } from './kafka/port.ts';
import { bytesAtMost, toRecord } from './kafka/record.ts';
import { planRounds } from './kafka/rounds.ts';
import type { Message, Publisher, PublisherCapabilities, PublishOutcome } from './publisher.ts';

export type {
  KafkaBatchPayload,
  KafkaConsumerClient,
  KafkaConsumerOptions,
  KafkaDeadLetterProducer,
  KafkaIncoming,
  KafkaMessagePayload,
} from '../consumers/kafka.ts';
export { consumeKafka, KafkaConsumer } from '../consumers/kafka.ts';
export type { KafkaCompression, KafkaOptions, KafkaProducer, KafkaSasl };

/**
 * Publishes to Apache Kafka, or what speaks its protocol: idempotent producer, acknowledged by all replicas in sync, in
 * order per key. The event's id is in the header `event-id`.
 *
 * @example
 * import { kafka } from 'postcommit/kafka';
 * const events = kafka({
 *   brokers: ['kafka-1:9092', 'kafka-2:9092'],
 *   ssl: true,
 *   sasl: { mechanism: 'scram-sha-512', username: 'relay', password: 'secret' },
 * });
 */
export function kafka(options: KafkaOptions): Publisher {
  return new KafkaPublisher(resolveKafkaOptions(options));
}

/** Bytes for one partition in one request: the broker counts them together against `max.message.bytes`. */
const partitionBytesMax = 900_000;
const topicsRememberedMax = 10_000;
const leaveTimeoutMs = 5_000;

class KafkaPublisher implements Publisher {
  readonly kind = 'kafka';
  readonly capabilities: PublisherCapabilities;
  readonly #options: ResolvedKafkaOptions;
  readonly #idle: KafkaPort[] = [];
  /** Discarded producers that may still deliver something. */
  readonly #leaving = new Set<Promise<void>>();
  readonly #calls = new Set<Promise<unknown>>();
  /** What a topic's broker takes together, where that is less than usual. */
  readonly #topicBytesMax = new Map<string, number>();
  readonly #missingTopics = new MissingTopics(() => this.#connectForLookUp());
  #nextPartition = 0;

  constructor(options: ResolvedKafkaOptions) {
    this.#options = options;
    this.capabilities = {
      batchSizeMax: options.batchSizeMax,
      batchBytesMax: 4_000_000,
      batchesInFlightMax: options.batchesInFlightMax,
      ordered: true,
      keyRuns: true,
      deduplicates: false,
      cloudEventsPrefix: 'ce_',
    };
  }

  async connect(signal: AbortSignal): Promise<void> {
    try {
      this.#release(await this.#take(signal));
    } catch (error) {
      throw connectError(error);
    }
  }

  async publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const delivery = new KafkaDelivery(batch);
    try {
      const reason = await untilAborted(this.#track(this.#deliver(batch, delivery, signal)), signal);
      return delivery.end(reason ?? 'It was not sent.');
    } catch (error) {
      const { outcome } = kafkaFailure(error);
      return delivery.end(outcome.kind === 'delivered' ? reasonOf(error) : cutReason(outcome.reason));
    }
  }

  async health(signal: AbortSignal): Promise<void> {
    if (this.#isShared)
      return untilAborted(
        this.#create().then((port) => port.ping()),
        signal,
      );
    const port = await this.#take(signal);
    try {
      await untilAborted(port.ping(), signal);
    } catch (error) {
      this.#giveUp(port);
      throw error;
    }
    this.#release(port);
  }

  /** Whether the only producer belongs to the caller. */
  get #isShared(): boolean {
    const { producer } = this.#options;
    return producer !== undefined && typeof producer !== 'function';
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#calls);
    this.#leave(this.#missingTopics.close());
    await Promise.allSettled(this.#idle.splice(0).map((port) => port.close()));
    // A caller's producer may retry without a limit.
    await Promise.race([Promise.allSettled(this.#leaving), sleep(leaveTimeoutMs, undefined, { ref: false })]);
    this.#topicBytesMax.clear();
  }

  /** Sends what can be sent. Returns why the rest, if any, was not. */
  async #deliver(batch: readonly Message[], delivery: KafkaDelivery, signal: AbortSignal): Promise<string | undefined> {
    const unassigned = this.#prepare(batch, delivery);
    if (unassigned.length === 0) return undefined;
    const sender = new RoundSender(await this.#take(signal), {
      delivery,
      onTooLarge: (topic, bytes) => this.#learnLimit(topic, bytes),
      replace: (port) => this.#replace(port, signal),
    });
    let isClean = false;
    try {
      const assigned = await untilAborted(this.#assign(unassigned, delivery, sender, signal), signal);
      for (const round of planRounds(assigned, (topic) => this.#bytesMax(topic))) {
        if (sender.outage !== undefined) break;
        await untilAborted(sender.send(round), signal);
      }
      isClean = !sender.failed;
    } finally {
      if (isClean) this.#release(sender.port);
      else this.#giveUp(sender.port);
      if (sender.isStale) for (const port of this.#idle.splice(0)) this.#giveUp(port);
    }
    return sender.outage;
  }

  #prepare(batch: readonly Message[], delivery: KafkaDelivery): UnassignedRecord[] {
    const unassigned: UnassignedRecord[] = [];
    for (const [index, message] of batch.entries()) {
      if (delivery.isHeldBack(index)) continue;
      const bytes = bytesAtMost(message);
      const record = toRecord(message, bytes, this.#options.messageBytesMax);
      if (typeof record === 'string') delivery.settle(index, { kind: 'rejected', reason: cutReason(record) });
      else unassigned.push({ index, record, bytes });
    }
    return unassigned;
  }

  /** Chooses a partition for each record; settles those whose topic is not available. */
  async #assign(
    unassigned: UnassignedRecord[],
    delivery: KafkaDelivery,
    sender: RoundSender,
    signal: AbortSignal,
  ): Promise<AssignedRecord[]> {
    const topics = new Set(unassigned.map(({ record }) => record.topic));
    const known = await this.#lookUp(topics, sender, signal);
    const partitions = new Map(Array.from(known, ([topic, found]) => [topic, topicPartitionsOf(topic, found)]));
    const assigned: AssignedRecord[] = [];
    for (const { index, record, bytes } of unassigned) {
      if (delivery.isHeldBack(index)) continue;
      const found = partitions.get(record.topic);
      if (found === undefined || 'outcome' in found) {
        delivery.settle(index, found?.outcome ?? { kind: 'unavailable', reason: 'The topic was not looked up.' });
        continue;
      }
      const topicPartition = this.#choose(record.key, found);
      record.partition = topicPartition.partition;
      assigned.push({ index, record, bytes, topicPartition });
    }
    return assigned;
  }

  #choose(key: string | null, partitions: readonly TopicPartition[]): TopicPartition {
    const index = key === null ? this.#nextPartition++ % partitions.length : partitionOfKey(key, partitions.length);
    return partitions[partitions.length === 1 ? 0 : index] as TopicPartition;
  }

  async #lookUp(topics: ReadonlySet<string>, sender: RoundSender, signal: AbortSignal): Promise<Map<string, Found>> {
    const found = new Map<string, Found>();
    const ask = async (topic: string) => found.set(topic, await this.#partitionsOf(sender.port, topic));
    await Promise.all([...topics].map(ask));
    const missing = [...found].flatMap(([topic, result]) =>
      'outcome' in result && result.about === 'topic' ? [topic] : [],
    );
    const unexpected = missing.filter((topic) => !this.#missingTopics.has(topic));
    if (unexpected.length === 0) return found;
    // kafkajs asks for all topics it ever sent to, and fails for all when one is gone: a new one asks for these alone.
    sender.port = await this.#replace(sender.port, signal);
    await Promise.all(unexpected.map(ask));
    for (const topic of unexpected) {
      const result = found.get(topic);
      if (result && 'outcome' in result && result.about === 'topic') this.#missingTopics.add(topic, result);
    }
    return found;
  }

  async #partitionsOf(port: KafkaPort, topic: string): Promise<Found> {
    const failure = await this.#missingTopics.failureOf(topic);
    if (failure !== undefined) return failure;
    try {
      const partitions = (await port.partitionsOf?.(topic)) ?? [];
      // In the order of their numbers, whatever the broker's: a key's partition depends on it.
      return [...partitions].sort((a, b) => a.partition - b.partition);
    } catch (error) {
      return kafkaFailure(error);
    }
  }

  #bytesMax(topic: string): number {
    return this.#topicBytesMax.get(topic) ?? Math.min(partitionBytesMax, this.#options.messageBytesMax);
  }

  #learnLimit(topic: string, refusedBytes: number): void {
    const bytes = Math.min(this.#bytesMax(topic), Math.max(1, refusedBytes >> 1));
    if (this.#topicBytesMax.size >= topicsRememberedMax) this.#topicBytesMax.clear();
    this.#topicBytesMax.set(topic, bytes);
  }

  async #take(signal: AbortSignal): Promise<KafkaPort> {
    const idle = this.#idle.pop();
    if (idle !== undefined) return idle;
    await untilAborted(Promise.all(this.#leaving), signal);
    const port = await untilAborted(this.#create(), signal);
    try {
      await untilAborted(port.open(), signal);
      return port;
    } catch (error) {
      this.#giveUp(port);
      throw error;
    }
  }

  async #create(): Promise<KafkaPort> {
    const { client, connection, producer } = this.#options;
    if (producer !== undefined) {
      const owned = typeof producer === 'function';
      const made = owned ? await producer() : producer;
      const refusal = refuseProducer(made, owned);
      if (refusal !== undefined) throw new TypeError(refusal);
      return customProducerPort(made, owned, connection.compression);
    }
    if (client === 'confluent') return confluentPort(connection);
    return client === 'platformatic' ? platformaticPort(connection) : kafkajsPort(connection);
  }

  async #connectForLookUp(): Promise<KafkaPort> {
    const port = await this.#create();
    // The caller's producer is connected already, and would get a new producer id in the middle of a batch.
    if (this.#isShared) return port;
    try {
      await port.open();
      return port;
    } catch (error) {
      this.#giveUp(port);
      throw error;
    }
  }

  async #replace(port: KafkaPort, signal: AbortSignal): Promise<KafkaPort> {
    this.#giveUp(port);
    const next = await this.#take(signal);
    if (!signal.aborted) return next;
    this.#giveUp(next);
    throw new Error('No answer in time.');
  }

  #release(port: KafkaPort): void {
    if (this.#idle.length < this.#options.batchesInFlightMax) this.#idle.push(port);
    else this.#leave(port.close());
  }

  #giveUp(port: KafkaPort): void {
    this.#leave(port.discard());
  }

  #leave(ending: Promise<void>): void {
    const left = ending.catch(() => {}).finally(() => this.#leaving.delete(left));
    this.#leaving.add(left);
  }

  #track<T>(call: Promise<T>): Promise<T> {
    const done = call.finally(() => this.#calls.delete(done));
    done.catch(() => {});
    this.#calls.add(done);
    return done;
  }
}

/** A record before its partition is chosen. */
interface UnassignedRecord {
  readonly index: number;
  readonly record: KafkaRecord;
  readonly bytes: number;
}

/** Where the client chooses the partition itself, the whole topic counts as one. */
function topicPartitionsOf(topic: string, found: Found): readonly TopicPartition[] | KafkaFailure {
  if ('outcome' in found) return found;
  if (found.length === 0) return [{ topic, partition: undefined, leader: 0 }];
  return found.map(({ partition, leader }) => ({ topic, partition, leader }));
}

type Found = readonly KafkaPartition[] | KafkaFailure;
