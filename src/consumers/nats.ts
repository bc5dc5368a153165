import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { answered, inTime } from './client-calls.ts';
import { type ConsumerOptions, readConsumerOptions, resolveConsumerOptions } from './consumer-options.ts';
import { EventConsumer, type MessageSource } from './event-consumer.ts';
import { pause } from './event-processor.ts';
import { Intake, quietController } from './intake.ts';
import { lowerCaseHeaders } from './message-headers.ts';
import { Redeliveries } from './nats-redeliveries.ts';

/** The part of a JetStream consumer (`@nats-io/jetstream`) that is used here. */
export interface JetstreamConsumer {
  info(): Promise<{
    config: { ack_wait?: number | undefined };
    /** Messages that were delivered and are not acknowledged. */
    num_ack_pending?: number;
    /** The last message that was delivered. */
    delivered?: { stream_seq: number };
  }>;
  consume(options: { max_messages: number }): Promise<JetstreamMessages>;
}

export interface JetstreamMessages extends AsyncIterable<JetstreamIncoming> {
  close(): Promise<unknown>;
}

/** The part of a JetStream message that is used here. */
export interface JetstreamIncoming {
  readonly subject?: string;
  /** The position in the stream. */
  readonly seq?: number;
  readonly data: Uint8Array;
  readonly headers?: { keys(): string[]; last(name: string): string } | undefined;
  ack(): void;
  ackAck(): Promise<boolean>;
  nak(delayMs?: number): void;
  term(): void;
  working(): void;
}

interface NatsOnly {
  /**
   * Returns the durable pull consumer: `() => jetstream(connection).consumers.get('ORDERS', 'billing')`. Called again when its connection
   * is closed for good. The connection is yours: close it after `stop()`.
   */
  consumer(): Promise<JetstreamConsumer>;
  /** Messages that are fetched ahead of their acknowledgement, from 1 to 65,535. Default twice `inFlightMax`. */
  prefetchMax?: number;
  /** Milliseconds for `consumer()` and for NATS to answer, from 1 to 600,000. Default 30,000: connecting has 20,000 by default. */
  connectTimeoutMs?: number;
}

/** Options of `consumeNats()`. */
export type NatsConsumerOptions<Tx, Catalogue extends EventCatalogue = EventCatalogue> = NatsOnly &
  ConsumerOptions<Tx, Catalogue>;

const own = ['consumer', 'prefetchMax', 'connectTimeoutMs'];
const reopenDelayMaxMs = 10_000;
const redeliveryDelayMs = 100;
/** JetStream's default, in nanoseconds. */
const ackWaitDefault = 30_000_000_000;

/**
 * Consumes a JetStream consumer of NATS. A processed message is acknowledged; one that fails for good is terminated, and the
 * server publishes an advisory about it. While a message waits or is being processed, its acknowledgement deadline is extended.
 *
 * @example
 * import { jetstream } from '@nats-io/jetstream';
 * import { connect } from '@nats-io/transport-node';
 * import { consumeNats } from 'postcommit/nats';
 *
 * const connection = await connect({ servers: 'localhost:4222' });
 * const orders = consumeNats({
 *   consumer: () => jetstream(connection).consumers.get('ORDERS', 'billing'),
 *   handle: (event) => console.log(event.id),
 * });
 * await orders.start();
 */
export function consumeNats<Tx, Catalogue extends EventCatalogue = EventCatalogue>(
  options: NatsConsumerOptions<Tx, Catalogue>,
): EventConsumer {
  const { fail, whole } = readConsumerOptions('consumeNats', options, own);
  if (typeof options.consumer !== 'function') {
    throw fail("consumer must be a function: () => jetstream(connection).consumers.get('STREAM', 'consumer').");
  }
  const intake = new Intake(resolveConsumerOptions('consumeNats', options, own));
  const source = new NatsSource(intake, {
    consumer: async () => options.consumer(),
    prefetchMax: whole('prefetchMax', Math.min(65_535, 2 * intake.options.inFlightMax), 1, 65_535),
    connectTimeoutMs: whole('connectTimeoutMs', 30_000, 1, 600_000),
  });
  return new EventConsumer(intake, source);
}

/** A consumer, and what it delivers. */
interface Session {
  readonly consumer: JetstreamConsumer;
  readonly messages: JetstreamMessages;
  readonly redeliveries: Redeliveries<JetstreamIncoming>;
}

class NatsSource implements MessageSource {
  readonly #intake: Intake;
  readonly #options: Required<NatsOnly>;
  /** Messages that are not settled. */
  readonly #unsettled = new Set<JetstreamIncoming>();
  /** Messages that were not processed before the stop. */
  readonly #released: JetstreamIncoming[] = [];
  #session: Session | undefined;
  /** Whether all that a process before this one had was delivered again. */
  #isCaughtUp = false;
  #reading: Promise<void> | undefined;
  #extending: NodeJS.Timeout | undefined;

  constructor(intake: Intake, options: Required<NatsOnly>) {
    this.#intake = intake;
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#isCaughtUp = false;
    this.#session = await this.#open();
    this.#reading = this.#read();
  }

  async stop(): Promise<void> {
    // Ends the reading below. It is not waited for: it ends only where something reads.
    void this.#session?.messages.close();
    await this.#reading;
    await this.#intake.idle();
    clearInterval(this.#extending);
    // Without a delay NATS 2.9 delivered the second of two such messages twice, and the first one not before its ack_wait.
    for (const message of this.#released.splice(0)) quietly(() => message.nak(redeliveryDelayMs));
    // NATS answers after it has got everything above. The caller closes the connection next.
    if (this.#session !== undefined) await answered(this.#session.consumer.info());
    this.#session = undefined;
  }

  async #open(): Promise<Session> {
    const before = inTime(this.#options.connectTimeoutMs, this.#intake.stopping);
    const consumer = await before(this.#options.consumer());
    const { config, num_ack_pending = 0, delivered } = await before(consumer.info());
    const consume = consumer.consume({ max_messages: this.#options.prefetchMax });
    const messages = await before(consume, (late) => late.close());
    const ackWaitMs = (config.ack_wait ?? ackWaitDefault) / 1_000_000;
    clearInterval(this.#extending);
    const extend = () => {
      for (const message of this.#unsettled) quietly(() => message.working());
    };
    this.#extending = setInterval(extend, Math.max(50, ackWaitMs / 3));
    const redeliveries = new Redeliveries<JetstreamIncoming>({
      lastSeq: delivered?.stream_seq ?? 0,
      // After a lost connection what is missing is in progress here: to wait for it would only delay the rest.
      count: this.#isCaughtUp ? 0 : num_ack_pending,
      waitMs: ackWaitMs,
      deliver: (message) => this.#intake.track(this.#process(message, consumer)),
    });
    return { consumer, messages, redeliveries };
  }

  async #read(): Promise<void> {
    const { stopping } = this.#intake;
    for (let tries = 0; !stopping.aborted; tries++) {
      try {
        const session = this.#session ?? (await this.#open());
        this.#session = session;
        // The consumer was stopped as this opened: stop() did not find it.
        if (stopping.aborted) return void session.messages.close();
        await this.#receive(session, () => {
          tries = 0;
        });
        if (stopping.aborted) return;
        throw new Error('NATS ended the consumer: the connection was closed, or the consumer was deleted.');
      } catch (error) {
        if (stopping.aborted) return;
        this.#session = undefined;
        this.#intake.disconnected(error);
        await pause(Math.random() * Math.min(reopenDelayMaxMs, 200 * 2 ** Math.min(tries, 10)), stopping);
      }
    }
  }

  async #receive({ messages, redeliveries }: Session, received: () => void): Promise<void> {
    try {
      redeliveries.resume();
      for await (const message of messages) {
        received();
        redeliveries.pause();
        this.#unsettled.add(message);
        redeliveries.take(message);
        await this.#intake.room(this.#options.prefetchMax);
        redeliveries.resume();
      }
    } finally {
      this.#isCaughtUp ||= redeliveries.isOver;
      // With the connection lost NATS delivers them again.
      for (const message of redeliveries.stop()) {
        this.#unsettled.delete(message);
        if (this.#intake.stopping.aborted) this.#released.push(message);
      }
    }
  }

  async #process(message: JetstreamIncoming, consumer: JetstreamConsumer): Promise<void> {
    const lost = quietController();
    const { headers } = message;
    const given = Object.fromEntries((headers?.keys() ?? []).map((name) => [name, headers?.last(name)]));
    const { kind } = await this.#intake.receive({
      message: { body: message.data, headers: lowerCaseHeaders(given) },
      origin: { system: 'nats', destination: message.subject },
      lost: lost.signal,
      deadLetter: () => terminate(message, consumer, lost),
      deadLetterIsFinal: true,
    });
    this.#unsettled.delete(message);
    if (kind === 'processed' || kind === 'duplicate' || kind === 'skipped') await this.#acknowledge(message);
    else if (kind === 'released' && this.#intake.stopping.aborted) this.#released.push(message);
  }

  /** The last ones are waited for: the caller closes the connection after `stop`. */
  async #acknowledge(message: JetstreamIncoming): Promise<void> {
    if (this.#intake.stopping.aborted) await message.ackAck().catch(() => {});
    else quietly(() => message.ack());
  }
}

/**
 * Without the reason: servers before 2.10.4 ignore a termination that has one. The client drops it silently when its connection is closed,
 * and ignores a second one, so NATS has to answer to another request on the same connection. If it does not, it delivers the message again.
 */
async function terminate(
  message: JetstreamIncoming,
  consumer: JetstreamConsumer,
  lost: AbortController,
): Promise<void> {
  quietly(() => message.term());
  if (await answered(consumer.info())) return;
  lost.abort();
  throw new Error('NATS did not confirm the termination: the connection is closed, or the server does not answer.');
}

/** A closed connection takes no acknowledgement: the server delivers the message again. */
function quietly(call: () => void): void {
  try {
    call();
  } catch {
    // The connection is closed.
  }
}
