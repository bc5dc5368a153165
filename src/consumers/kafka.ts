import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { PostcommitError } from '../errors.ts';
import { isIdempotentKafkajs } from '../publishers/idempotent-producer.ts';
import { errorText } from '../telemetry/error-text.ts';
import { type ConsumerOptions, readConsumerOptions, resolveConsumerOptions } from './consumer-options.ts';
import { EventConsumer, type MessageSource } from './event-consumer.ts';
import { type DeadLetterReason, Intake, quietController } from './intake.ts';
import { deadLetterHeaders, lowerCaseHeaders } from './message-headers.ts';

/** A message as kafkajs delivers it. */
export interface KafkaIncoming {
  readonly key?: Buffer | null;
  readonly value: Buffer | null;
  readonly headers?: Readonly<Record<string, Buffer | string | (Buffer | string)[] | undefined>> | undefined;
  readonly offset: string;
}

/** What `eachMessage` gets. */
export interface KafkaMessagePayload {
  readonly topic: string;
  readonly partition: number;
  readonly message: KafkaIncoming;
  heartbeat(): Promise<void>;
  pause?(): unknown;
}

/** What `eachBatch` gets. */
export interface KafkaBatchPayload {
  readonly batch: { readonly topic: string; readonly partition: number; readonly messages: readonly KafkaIncoming[] };
  resolveOffset(offset: string): void;
  heartbeat(): Promise<void>;
  commitOffsetsIfNecessary(): Promise<void>;
  isRunning(): boolean;
  isStale(): boolean;
  pause?(): unknown;
}

/** The part of a Kafka consumer that is used here. */
export interface KafkaConsumerClient {
  connect(): Promise<unknown>;
  disconnect(): Promise<unknown>;
  subscribe(subscription: { topics: string[]; fromBeginning?: boolean }): Promise<unknown>;
  run(config: {
    eachBatch(payload: KafkaBatchPayload): Promise<void>;
    eachBatchAutoResolve: boolean;
    partitionsConsumedConcurrently: number;
  }): Promise<unknown>;
  readonly events: { readonly CRASH: 'consumer.crash' };
  /** Returns a function that removes the listener. */
  on(event: 'consumer.crash', listener: (event: KafkaCrash) => void): () => void;
}

/** kafkajs reports an error that its own retries did not overcome. It begins again with `restart`, and otherwise ends. */
export interface KafkaCrash {
  readonly payload: { readonly error: Error; readonly restart: boolean };
}

/**
 * The part of a producer that dead letters need. The producer must be connected, and must not be an idempotent one of kafkajs: after a
 * failure, the broker confirms dead letters of such a producer and drops them.
 */
export interface KafkaDeadLetterProducer {
  send(record: {
    topic: string;
    messages: { key: Buffer | null; value: Buffer | null; headers: Record<string, string> }[];
  }): Promise<unknown>;
}

interface KafkaOnly {
  /**
   * A consumer of kafkajs: `kafka.consumer({ groupId: 'billing' })`. It is
   * connected by `start()` and disconnected by `stop()`. Leave it out to call `run` yourself, with `eachBatch` or `eachMessage`.
   */
  consumer?: KafkaConsumerClient;
  /** The topics to subscribe to. */
  topics?: string[];
  /** Where a new group begins. Default: as the client has it, with what is published from now on. */
  fromBeginning?: boolean;
  /** Partitions processed at the same time, from 1 to 1,000. `inFlightMax` limits their events together. Default 3. */
  partitionsInFlightMax?: number;
  /**
   * Kafka has no dead letters, so messages that fail for good go to a topic of yours, with their headers and the reason in
   * `dead-letter-reason`. The partition waits while the producer cannot send. `'skip'`: they are logged and left behind.
   */
  deadLetter: { producer: KafkaDeadLetterProducer; topic: string } | 'skip';
}

/** Options of `consumeKafka()`. */
export type KafkaConsumerOptions<Tx, Catalogue extends EventCatalogue = EventCatalogue> = KafkaOnly &
  ConsumerOptions<Tx, Catalogue>;

const own = ['consumer', 'topics', 'fromBeginning', 'partitionsInFlightMax', 'deadLetter'];

/** How often a batch in progress sends a heartbeat, and looks whether its partition is still assigned. The client sends fewer. */
const watchIntervalMs = 200;

/** Consumes topics of Kafka. Made by `consumeKafka`. */
export class KafkaConsumer extends EventConsumer {
  readonly #source: KafkaSource;
  /**
   * For a `run` of yours: `consumer.run({ eachBatchAutoResolve: false, eachBatch: orders.eachBatch })`. Call `stop()` before you
   * disconnect: what it has not begun stays in Kafka.
   */
  readonly eachBatch: (payload: KafkaBatchPayload) => Promise<void>;
  /** The same message by message: `consumer.run({ eachMessage: orders.eachMessage })`. A partition is processed one by one. */
  readonly eachMessage: (payload: KafkaMessagePayload) => Promise<void>;

  constructor(intake: Intake, source: KafkaSource) {
    super(intake, source, { runs: !source.hasClient });
    this.#source = source;
    this.eachBatch = (payload) => source.eachBatch(payload);
    this.eachMessage = (payload) => source.eachMessage(payload);
  }

  override start(): Promise<void> {
    return this.#source.hasClient ? super.start() : this.#source.start(() => {});
  }
}

/**
 * Consumes topics of Kafka. Events of one key are processed in order, those of different keys of a partition in parallel. An offset is
 * committed when all messages before it are settled. When the group rebalances in the middle of a batch, handlers in flight finish, and
 * the rest of the batch goes to the new owner of the partition.
 *
 * @example
 * import { Kafka } from 'kafkajs';
 * import { createInbox, fromPg } from 'postcommit';
 * import { consumeKafka } from 'postcommit/kafka';
 *
 * const orders = consumeKafka({
 *   consumer: new Kafka({ brokers: ['localhost:9092'] }).consumer({ groupId: 'billing' }),
 *   topics: ['orders'],
 *   deadLetter: 'skip',
 *   inbox: createInbox({ db: fromPg(pool) }).consumer('billing'),
 *   transactional: true,
 *   handle: (event, { tx }) => tx.query('insert into invoices (order_id) values ($1)', [event.aggregate?.id]),
 * });
 * await orders.start();
 */
export function consumeKafka<Tx, Catalogue extends EventCatalogue = EventCatalogue>(
  options: KafkaConsumerOptions<Tx, Catalogue>,
): KafkaConsumer {
  const { fail, whole } = readConsumerOptions('consumeKafka', options, own);
  const { consumer, topics, deadLetter, fromBeginning } = options;
  if (consumer !== undefined && (typeof consumer?.run !== 'function' || typeof consumer.on !== 'function')) {
    throw fail('consumer must be a consumer of kafkajs.');
  }
  if (consumer !== undefined && !(Array.isArray(topics) && topics.length > 0)) {
    throw fail('topics must be a list of at least one topic.');
  }
  const isDeadLetter = deadLetter === 'skip' || (typeof deadLetter?.producer?.send === 'function' && deadLetter.topic);
  if (!isDeadLetter) throw fail("deadLetter must be { producer, topic }, or 'skip'.");
  if (deadLetter !== 'skip' && isIdempotentKafkajs(deadLetter.producer)) {
    throw fail(
      'deadLetter.producer must not be an idempotent producer of kafkajs, which loses records after a failure: pass one without `idempotent` (`kafka.producer()`).',
    );
  }
  const intake = new Intake(resolveConsumerOptions('consumeKafka', options, own));
  const partitionsInFlightMax = whole('partitionsInFlightMax', 3, 1, 1_000);
  const source = new KafkaSource(intake, {
    consumer,
    topics: topics ?? [],
    fromBeginning,
    partitionsInFlightMax,
    deadLetter,
  });
  return new KafkaConsumer(intake, source);
}

interface ResolvedKafka extends Pick<KafkaOnly, 'deadLetter'> {
  readonly consumer: KafkaConsumerClient | undefined;
  readonly topics: string[];
  readonly fromBeginning: boolean | undefined;
  readonly partitionsInFlightMax: number;
}

/** Remove the listeners to clients. A listener outlives a stop, until its client is started again, by this consumer or another one. */
const listening = new WeakMap<KafkaConsumerClient, () => void>();

class KafkaSource implements MessageSource {
  readonly #intake: Intake;
  readonly #options: ResolvedKafka;
  /** Whether stop() has disconnected the client. */
  #isStopped = false;
  /** Settles when the client has ended what it began after a stop. */
  #ending: Promise<unknown> = Promise.resolve();

  constructor(intake: Intake, options: ResolvedKafka) {
    this.#intake = intake;
    this.#options = options;
  }

  /** Whether it calls `run` itself. */
  get hasClient(): boolean {
    return this.#options.consumer !== undefined;
  }

  async start(crashed: (error: unknown) => void): Promise<void> {
    const { consumer, topics, fromBeginning, partitionsInFlightMax } = this.#options;
    if (consumer === undefined) {
      throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', 'consumeKafka(): start() needs the option consumer.');
    }
    await this.#ending;
    this.#isStopped = false;
    let isStarting = true;
    let failure: Error | undefined;
    listening.get(consumer)?.();
    const stopListening = consumer.on(consumer.events.CRASH, ({ payload: { error, restart } }) => {
      if (this.#intake.stopping.aborted) {
        if (restart) this.#endRestart(consumer);
      } else if (restart) this.#intake.disconnected(error);
      else if (isStarting) failure = error;
      else crashed(error);
    });
    listening.set(consumer, stopListening);
    try {
      await consumer.connect();
      await consumer.subscribe({ topics, ...(fromBeginning !== undefined && { fromBeginning }) });
      await consumer.run({
        eachBatchAutoResolve: false,
        partitionsConsumedConcurrently: partitionsInFlightMax,
        eachBatch: (payload) => this.#eachBatchOfRun(payload),
      });
      // run() resolves all the same when it could not join the group.
      if (failure !== undefined) throw failure;
      isStarting = false;
    } catch (error) {
      stopListening();
      await consumer.disconnect().catch(() => {});
      throw error;
    }
  }

  /** The client waits for batches in progress, commits their offsets and leaves the group. */
  async stop(): Promise<void> {
    try {
      await this.#options.consumer?.disconnect();
    } finally {
      this.#isStopped = true;
    }
    await this.#intake.idle();
  }

  /**
   * kafkajs restarts by a timer, which it sets right after this event, when it has left the group. Leaving takes until requestTimeout if
   * the broker does not answer, and a stop in the meantime has disconnected too early to clear the timer.
   */
  #endRestart(consumer: KafkaConsumerClient): void {
    this.#ending = Promise.resolve()
      .then(() => consumer.disconnect())
      .catch((error) => this.#intake.warn('stopping failed', { error: errorText(error) }));
  }

  /** What kafkajs was starting during a stop may have escaped its disconnect(). It ends with an error that it does not retry. */
  async #eachBatchOfRun(payload: KafkaBatchPayload): Promise<void> {
    const final = { retriable: false };
    if (this.#isStopped) throw Object.assign(new PostcommitError('POSTCOMMIT_E_CONSUMER_STOPPING'), final);
    await this.eachBatch(payload);
  }

  eachBatch(payload: KafkaBatchPayload): Promise<void> {
    return this.#tracked(this.#processBatch(payload), payload);
  }

  eachMessage(payload: KafkaMessagePayload): Promise<void> {
    return this.#tracked(this.#processMessage(payload), payload);
  }

  /** After a stop a client that is not ours fetches what was released again and again: its partition is paused. */
  async #tracked(work: Promise<void>, { pause }: { pause?(): unknown }): Promise<void> {
    this.#intake.track(work.catch(() => {}));
    try {
      await work;
    } finally {
      if (!this.hasClient && this.#intake.stopping.aborted) pause?.();
    }
  }

  async #processBatch(payload: KafkaBatchPayload): Promise<void> {
    const { batch, resolveOffset } = payload;
    const { messages, topic, partition } = batch;
    const watch = new AssignmentWatch(payload);
    const settled = new Array<boolean>(messages.length).fill(false);
    let next = 0;
    try {
      await Promise.all(
        messages.map(async (message, index) => {
          const isSettled = await this.#process(message, { topic, partition }, watch.lost);
          watch.look();
          if (!isSettled) return;
          settled[index] = true;
          // Only up to the first message that is not settled: a crash must not lose it.
          while (settled[next] && !payload.isStale()) resolveOffset((messages[next++] as KafkaIncoming).offset);
        }),
      );
    } finally {
      watch.end();
    }
    if (watch.failure !== undefined) throw watch.failure;
    await payload.heartbeat();
  }

  async #processMessage({ topic, partition, message, heartbeat }: KafkaMessagePayload): Promise<void> {
    const watch = new AssignmentWatch({ heartbeat });
    let isSettled = false;
    try {
      isSettled = await this.#process(message, { topic, partition }, watch.lost);
    } finally {
      watch.end();
    }
    // kafkajs commits the offset unless this rejects.
    if (!isSettled) throw watch.failure ?? new PostcommitError('POSTCOMMIT_E_CONSUMER_STOPPING');
  }

  async #process(message: KafkaIncoming, at: Position, lost: AbortSignal): Promise<boolean> {
    const headers = lowerCaseHeaders(message.headers);
    const { kind } = await this.#intake.receive({
      message: { body: message.value ?? '', headers, key: message.key ? message.key.toString() : null },
      origin: {
        system: 'kafka',
        destination: at.topic,
        attributes: {
          'messaging.destination.partition.id': String(at.partition),
          'messaging.kafka.offset': Number(message.offset),
        },
      },
      lost,
      deadLetter: (reason) => this.#sendDeadLetter(message, headers, at, reason),
    });
    return kind !== 'released' && kind !== 'unavailable';
  }

  async #sendDeadLetter(
    { key = null, value, offset }: KafkaIncoming,
    headers: Readonly<Record<string, string>>,
    { topic, partition }: Position,
    reason: DeadLetterReason,
  ): Promise<void> {
    const { deadLetter } = this.#options;
    if (deadLetter === 'skip') return;
    const where = {
      'dead-letter-topic': topic,
      'dead-letter-partition': String(partition),
      'dead-letter-offset': offset,
    };
    const message = { key, value, headers: { ...headers, ...where, ...deadLetterHeaders(reason) } };
    await deadLetter.producer.send({ topic: deadLetter.topic, messages: [message] });
  }
}

interface Position {
  readonly topic: string;
  readonly partition: number;
}

/** Sends heartbeats while a batch is in progress, and notices that its partition is given to another consumer. */
class AssignmentWatch {
  readonly #payload: Pick<KafkaMessagePayload, 'heartbeat'> & Partial<KafkaBatchPayload>;
  readonly #lost = quietController();
  readonly #timer: NodeJS.Timeout;
  #beating: Promise<void> | undefined;
  /** Why heartbeats fail, e.g. a rebalance. The client must get it: it then joins the group again. */
  failure: unknown;

  constructor(payload: Pick<KafkaMessagePayload, 'heartbeat'> & Partial<KafkaBatchPayload>) {
    this.#payload = payload;
    this.#timer = setInterval(() => this.#beat(), watchIntervalMs);
  }

  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  look(): void {
    const { isRunning, isStale } = this.#payload;
    if (isRunning?.() === false || isStale?.() === true) this.#lost.abort();
  }

  end(): void {
    clearInterval(this.#timer);
  }

  #beat(): void {
    this.look();
    this.#beating ??= this.#sendHeartbeat().finally(() => {
      this.#beating = undefined;
    });
  }

  async #sendHeartbeat(): Promise<void> {
    try {
      await this.#payload.heartbeat();
      await this.#payload.commitOffsetsIfNecessary?.();
    } catch (error) {
      this.failure ??= error;
      this.#lost.abort();
    }
  }
}
