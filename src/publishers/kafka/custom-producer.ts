import { isIdempotentKafkajs } from '../idempotent-producer.ts';
import { checkKafkajsAnswer } from './answer.ts';
import { ConfluentPort, type ConfluentProducer } from './confluent.ts';
import { PlatformaticPort, type PlatformaticProducer } from './platformatic.ts';
import { AnswerIncomplete, type KafkaCompression, type KafkaPort, type KafkaRecord, SomeFailed } from './port.ts';

/** The part of a kafkajs producer that is used here. */
export interface KafkajsProducer {
  connect(): Promise<unknown>;
  disconnect(): Promise<unknown>;
  sendBatch(batch: never): Promise<unknown>;
  on(event: never, listener: never): unknown;
  isIdempotent?(): boolean;
}

/** A producer of kafkajs, of `@confluentinc/kafka-javascript` or of `@platformatic/kafka`. */
export type KafkaProducer = KafkajsProducer | ConfluentProducer | PlatformaticProducer;

/** Why this producer cannot be used, or `undefined`. */
export function refuseProducer(producer: unknown, owned: boolean): string | undefined {
  const { sendBatch, on } = (producer ?? {}) as Partial<KafkajsProducer>;
  if (isPlatformatic(producer) || isConfluent(producer)) return undefined;
  if (typeof sendBatch !== 'function' || typeof on !== 'function') {
    return 'producer must be a producer of kafkajs, @confluentinc/kafka-javascript or @platformatic/kafka, or a function that makes one.';
  }
  if (owned || !isIdempotentKafkajs(producer)) return undefined;
  return 'An idempotent producer of kafkajs must not be used after a failure, or it loses records: pass a function that makes one (`producer: () => kafka.producer({ idempotent: true })`), so that it can be replaced.';
}

/** A port over the caller's producer. `owned`: the caller's function made it for us, so we close it. */
export function customProducerPort(producer: KafkaProducer, owned: boolean, compression: KafkaCompression): KafkaPort {
  if (isPlatformatic(producer)) return new PlatformaticPort(producer, { owned });
  if (isConfluent(producer)) return new ConfluentPort(producer, owned);
  return new KafkajsLikePort(producer as KafkajsProducer, owned, compression);
}

function isPlatformatic(producer: unknown): producer is PlatformaticProducer {
  const { initIdempotentProducer, metadata } = (producer ?? {}) as Partial<PlatformaticProducer>;
  return typeof initIdempotentProducer === 'function' && typeof metadata === 'function';
}

function isConfluent(producer: unknown): producer is ConfluentProducer {
  return typeof ((producer ?? {}) as Partial<ConfluentProducer>).dependentAdmin === 'function';
}

interface Calls {
  sendBatch(batch: object): Promise<readonly { topicName: string; partition: number }[]>;
  on(event: 'producer.network.request', listener: (event: { payload: RequestAnswered }) => void): () => void;
}

/** The part of kafkajs's event for every answered request that is used here. */
interface RequestAnswered {
  /** `Produce`, `Metadata`, … */
  readonly apiName: string;
  /** `host:port` */
  readonly broker: string;
}

const compressionTypes = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 } as const;

/** kafkajs chooses partitions itself and does not report which of them failed, so a record may be stored twice after a failure. */
class KafkajsLikePort implements KafkaPort {
  readonly resendsSafely: boolean;
  readonly #producer: KafkajsProducer;
  readonly #owned: boolean;
  readonly #compression: KafkaCompression;
  #pending: Promise<unknown> = Promise.resolve();

  constructor(producer: KafkajsProducer, owned: boolean, compression: KafkaCompression) {
    this.#producer = producer;
    this.#owned = owned;
    this.#compression = compression;
    this.resendsSafely = !owned;
  }

  async open(): Promise<void> {
    await this.#producer.connect();
  }

  async send(records: readonly KafkaRecord[]): Promise<void> {
    const byTopic = new Map<string, object[]>();
    for (const { topic, key, value, headers } of records) {
      const messages = byTopic.get(topic) ?? [];
      messages.push({ key, value, headers });
      byTopic.set(topic, messages);
    }
    const topicMessages = [...byTopic].map(([topic, messages]) => ({ topic, messages }));
    const batch = { acks: -1, compression: compressionTypes[this.#compression], topicMessages };
    const producer = this.#producer as unknown as Calls;
    const watch = new RetryWatch();
    const unwatch = producer.on('producer.network.request', ({ payload }) => watch.answered(payload));
    const sent = producer.sendBatch(batch).finally(unwatch);
    this.#pending = sent.catch(() => {});
    checkKafkajsAnswer(await sent, records);
    if (watch.mayHaveLeftOut) throw new SomeFailed(new Map(records.map((each) => [each, new AnswerIncomplete(each)])));
  }

  /** Its interface offers nothing else: it connects when it is not connected. */
  async ping(): Promise<void> {
    await this.#producer.connect();
  }

  async discard(): Promise<void> {
    // Closing waits for what is in flight, which kafkajs retries for long: do not wait for one and then the other.
    await Promise.all([this.#pending, this.close()]);
  }

  async close(): Promise<void> {
    if (this.#owned) await this.#producer.disconnect().catch(() => {});
  }
}

/**
 * kafkajs does not ask a broker again that has answered earlier in the same call, not even for a partition that has moved
 * to it during a retry: that partition is left out. Which partitions it chose is not known here, but a call cannot have
 * left one out unless a broker answered, the metadata was read again, and that broker was not asked once more.
 */
class RetryWatch {
  readonly #beforeRetry = new Set<string>();
  readonly #sinceRetry = new Set<string>();

  get mayHaveLeftOut(): boolean {
    return [...this.#beforeRetry].some((broker) => !this.#sinceRetry.has(broker));
  }

  answered({ apiName, broker }: RequestAnswered): void {
    if (apiName === 'Produce') this.#sinceRetry.add(broker);
    if (apiName !== 'Metadata') return;
    for (const asked of this.#sinceRetry) this.#beforeRetry.add(asked);
    this.#sinceRetry.clear();
  }
}
