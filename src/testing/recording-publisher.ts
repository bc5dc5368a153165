import { sendInKeyOrder } from '../publishers/key-order.ts';
import type { Message, Publisher, PublisherCapabilities, PublishOutcome } from '../publishers/publisher.ts';
import { delivered } from '../publishers/publisher.ts';

/** Decides the outcome of a message. `undefined`: delivered. */
export type Respond = (message: Message) => PublishOutcome | undefined | Promise<PublishOutcome | undefined>;

const atOnceMax = 100;

/**
 * A destination for tests: keeps messages in memory instead of sending them to a broker. Messages have gone through `route` and the
 * serializer, as for a real one. `respond` makes some of them fail.
 *
 * @example
 * import { RecordingPublisher } from 'postcommit/testing';
 *
 * const broker = new RecordingPublisher();
 * const relay = createRelay({ connectionString: 'postgres://localhost/shop_test', destinations: { events: broker } });
 * await relay.runOnce();
 * console.log(broker.messages.map(({ topic, body }) => [topic, body]));
 */
export class RecordingPublisher implements Publisher {
  readonly kind = 'recording';
  readonly capabilities: PublisherCapabilities = {
    batchSizeMax: 500,
    batchBytesMax: 1_048_576,
    batchesInFlightMax: 4,
    ordered: true,
    keyRuns: true,
    deduplicates: false,
    cloudEventsPrefix: 'ce_',
  };
  /** What was delivered so far, oldest first. Messages of one key are in their order. */
  readonly messages: Message[] = [];
  /** Every message that was tried, also those that were not delivered. */
  readonly attempts: Message[] = [];
  /** May be replaced at any time, e.g. by `() => ({ kind: 'failed', reason: 'busy' })`. Default: everything is delivered. */
  respond: Respond;

  constructor(respond: Respond = () => undefined) {
    this.respond = respond;
  }

  /** The JSON bodies of the delivered messages, parsed; only those of one topic if it is given. */
  bodies(topic?: string): unknown[] {
    const wanted = this.messages.filter((message) => topic === undefined || message.topic === topic);
    return wanted.map(({ body }) => JSON.parse(typeof body === 'string' ? body : Buffer.from(body).toString()));
  }

  /** Forgets all messages. */
  clear(): void {
    this.messages.length = 0;
    this.attempts.length = 0;
  }

  async connect(): Promise<void> {}

  publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    return sendInKeyOrder(batch, atOnceMax, (message) => this.#take(message, signal));
  }

  async health(): Promise<void> {}

  async close(): Promise<void> {}

  async #take(message: Message, signal: AbortSignal): Promise<PublishOutcome> {
    if (signal.aborted) return notTaken;
    this.attempts.push(message);
    const outcome = (await this.respond(message)) ?? delivered;
    if (outcome.kind !== 'delivered') return outcome;
    if (signal.aborted) return notTaken;
    this.messages.push(message);
    return delivered;
  }
}

const notTaken: PublishOutcome = { kind: 'unavailable', reason: 'The call was aborted.' };
