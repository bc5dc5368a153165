import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { answered, inTime } from './client-calls.ts';
import { type ConsumerOptions, readConsumerOptions, resolveConsumerOptions } from './consumer-options.ts';
import { EventConsumer, type MessageSource } from './event-consumer.ts';
import { pause } from './event-processor.ts';
import { Intake, quietController } from './intake.ts';
import { lowerCaseHeaders } from './message-headers.ts';

/** The part of amqplib's connection that is used here. */
export interface AmqpConnection {
  createChannel(): Promise<AmqpChannel>;
  close(): Promise<unknown>;
  on(event: 'error' | 'close', listener: (error?: Error) => void): unknown;
}

/** The part of amqplib's channel that is used here. */
export interface AmqpChannel {
  prefetch(count: number): unknown;
  consume(
    queue: string,
    onMessage: (message: AmqpIncoming | null) => void,
    options: { noAck: boolean; exclusive: boolean },
  ): Promise<{ consumerTag: string }>;
  cancel(consumerTag: string): Promise<unknown>;
  ack(message: never): void;
  nack(message: never, allUpTo: boolean, requeue: boolean): void;
  close(): Promise<unknown>;
  on(event: 'error' | 'close', listener: (error?: Error) => void): unknown;
}

export interface AmqpIncoming {
  readonly content: Buffer;
  readonly properties: {
    readonly contentType?: unknown;
    readonly headers?: Readonly<Record<string, unknown>> | undefined;
  };
}

interface RabbitmqOnly {
  /** Opens a connection with amqplib: `() => amqp.connect(url)`. Called again when the connection is lost. */
  connect(): Promise<AmqpConnection>;
  /**
   * The queue. It must exist, and have a dead-letter exchange (`x-dead-letter-exchange`, by argument or policy): RabbitMQ drops
   * messages that fail for good if there is none.
   */
  queue: string;
  /** Messages that RabbitMQ delivers ahead of their acknowledgement, from 1 to 65,535. Default twice `inFlightMax`. */
  prefetchMax?: number;
  /** Refuse to share the queue with another consumer. For order per key use a queue with `x-single-active-consumer` instead. Default `false`. */
  exclusive?: boolean;
  /** Milliseconds for RabbitMQ to accept the connection and the consumer, from 1 to 600,000. Default 10,000. */
  connectTimeoutMs?: number;
}

/** Options of `consumeRabbitmq()`. */
export type RabbitmqConsumerOptions<Tx, Catalogue extends EventCatalogue = EventCatalogue> = RabbitmqOnly &
  ConsumerOptions<Tx, Catalogue>;

const own = ['connect', 'queue', 'prefetchMax', 'exclusive', 'connectTimeoutMs'];
const reconnectDelayMaxMs = 10_000;

/**
 * Consumes a queue of RabbitMQ. A processed message is acknowledged; one that fails for good is rejected without requeue, so RabbitMQ
 * moves it to the dead-letter exchange of the queue. A lost connection is replaced, and RabbitMQ delivers what was not acknowledged again.
 *
 * @example
 * import { connect } from 'amqplib';
 * import { createInbox, fromPg } from 'postcommit';
 * import { consumeRabbitmq } from 'postcommit/rabbitmq';
 *
 * const orders = consumeRabbitmq({
 *   connect: () => connect('amqp://localhost'),
 *   queue: 'billing',
 *   inbox: createInbox({ db: fromPg(pool) }).consumer('billing'),
 *   transactional: true,
 *   handle: (event, { tx }) => tx.query('insert into invoices (order_id) values ($1)', [event.aggregate?.id]),
 * });
 * await orders.start();
 */
export function consumeRabbitmq<Tx, Catalogue extends EventCatalogue = EventCatalogue>(
  options: RabbitmqConsumerOptions<Tx, Catalogue>,
): EventConsumer {
  const { fail, whole, flag, text } = readConsumerOptions('consumeRabbitmq', options, own);
  if (typeof options.connect !== 'function') throw fail('connect must be a function: () => amqp.connect(url).');
  const queue = text('queue');
  if (queue === undefined) throw fail('queue must be the name of a queue.');
  const intake = new Intake(resolveConsumerOptions('consumeRabbitmq', options, own));
  const source = new RabbitmqSource(intake, {
    connect: async () => options.connect(),
    queue,
    prefetchMax: whole('prefetchMax', Math.min(65_535, 2 * intake.options.inFlightMax), 1, 65_535),
    exclusive: flag('exclusive', false),
    connectTimeoutMs: whole('connectTimeoutMs', 10_000, 1, 600_000),
  });
  return new EventConsumer(intake, source);
}

/** A channel with its connection. */
interface Link {
  readonly connection: AmqpConnection;
  readonly channel: AmqpChannel;
  readonly consumerTag: string;
}

class RabbitmqSource implements MessageSource {
  readonly #intake: Intake;
  readonly #options: Required<RabbitmqOnly>;
  #link: Link | undefined;
  #reconnecting: Promise<void> | undefined;

  constructor(intake: Intake, options: Required<RabbitmqOnly>) {
    this.#intake = intake;
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#link = await this.#open();
  }

  async stop(): Promise<void> {
    await this.#reconnecting;
    const link = this.#link;
    if (link !== undefined) await answered(link.channel.cancel(link.consumerTag));
    await this.#intake.idle();
    this.#link = undefined;
    if (link === undefined) return;
    // Acknowledgements travel before this; RabbitMQ puts everything else back into the queue, where it was.
    await answered(link.channel.close());
    await answered(link.connection.close());
  }

  async #open(): Promise<Link> {
    const before = inTime(this.#options.connectTimeoutMs, this.#intake.stopping);
    const connection = await before(this.#options.connect(), (late) => {
      // Without a listener an error would end the process.
      late.on('error', () => {});
      return late.close();
    });
    const lost = quietController();
    let failure: Error | undefined;
    let isOpen = false;
    const onError = (error?: Error) => {
      failure ??= error;
    };
    const onClose = () => {
      if (lost.signal.aborted) return;
      lost.abort();
      connection.close().catch(() => {});
      if (isOpen) this.#reconnect(failure ?? new Error('The channel or the connection was closed.'));
    };
    connection.on('error', onError);
    connection.on('close', onClose);
    try {
      const channel = await before(connection.createChannel());
      channel.on('error', onError);
      channel.on('close', onClose);
      await before(Promise.resolve(channel.prefetch(this.#options.prefetchMax)));
      const onMessage = (message: AmqpIncoming | null) => {
        if (message !== null) return this.#intake.track(this.#process(channel, message, lost.signal));
        failure ??= new Error('RabbitMQ cancelled the consumer: the queue was deleted, or its node is down.');
        onClose();
      };
      const { queue, exclusive } = this.#options;
      const { consumerTag } = await before(channel.consume(queue, onMessage, { noAck: false, exclusive }));
      if (lost.signal.aborted) throw failure ?? new Error('The channel was closed.');
      isOpen = true;
      return { connection, channel, consumerTag };
    } catch (error) {
      lost.abort();
      void answered(connection.close());
      throw failure ?? error;
    }
  }

  #reconnect(error: unknown): void {
    this.#link = undefined;
    if (this.#intake.stopping.aborted || this.#reconnecting !== undefined) return;
    this.#intake.disconnected(error);
    this.#reconnecting = this.#openAgain().finally(() => {
      this.#reconnecting = undefined;
    });
  }

  async #openAgain(): Promise<void> {
    const { stopping } = this.#intake;
    for (let tries = 0; !stopping.aborted; tries++) {
      await pause(Math.random() * Math.min(reconnectDelayMaxMs, 200 * 2 ** Math.min(tries, 10)), stopping);
      if (stopping.aborted) return;
      try {
        this.#link = await this.#open();
        return;
      } catch (error) {
        this.#intake.disconnected(error);
      }
    }
  }

  async #process(channel: AmqpChannel, message: AmqpIncoming, lost: AbortSignal): Promise<void> {
    const { contentType, headers } = message.properties;
    const { kind } = await this.#intake.receive({
      message: {
        body: message.content,
        headers: lowerCaseHeaders(headers),
        ...(typeof contentType === 'string' && { contentType }),
      },
      origin: { system: 'rabbitmq', destination: this.#options.queue },
      lost,
      deadLetter: () => {
        if (lost.aborted) throw new Error('The channel was closed, so RabbitMQ delivers the message again.');
        channel.nack(message as never, false, false);
      },
    });
    if (kind === 'processed' || kind === 'duplicate' || kind === 'skipped') {
      onOpenChannel(lost, () => channel.ack(message as never));
    }
  }
}

/** A channel that is closed takes no acknowledgement: RabbitMQ delivers the message again. */
function onOpenChannel(lost: AbortSignal, settle: () => void): void {
  if (lost.aborted) return;
  try {
    settle();
  } catch {
    // The channel is closing.
  }
}
