import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { sendInKeyOrder } from '../../src/publishers/key-order.ts';
import {
  delivered,
  type Message,
  type Publisher,
  type PublisherCapabilities,
  type PublishOutcome,
} from '../../src/publishers/publisher.ts';
import type { PublisherHarness, ReceivedMessage } from '../../src/testing/index.ts';
import { deferred } from '../support/wait.ts';

const readMsMax = 2_000;
const stopMs = 60;

/** A broker in this process: what is tested with it is the conformance suite. */
export class MemoryBroker {
  static readonly messageBytesMax = 10_000;
  state: 'running' | 'stopped' | 'frozen' = 'running';
  /** How often it was stopped. */
  stops = 0;
  wasAway = false;
  readonly #topics = new Map<string, ReceivedMessage[]>();
  #thawed = deferred();

  /** One conversation: the moment it answers, or why it does not. */
  async answer(signal: AbortSignal): Promise<void> {
    await sleep(1);
    if (this.state === 'frozen') await Promise.race([this.#thawed.promise, aborted(signal)]);
    signal.throwIfAborted();
    if (this.state === 'stopped') throw new Error('connection refused');
  }

  store(topic: string, message: ReceivedMessage): void {
    this.#topics.get(topic)?.push(message);
  }

  harness(createPublisher: (broker: MemoryBroker) => Publisher): Required<PublisherHarness> {
    return {
      createPublisher: () => createPublisher(this),
      createTopic: async () => {
        const topic = `topic-${this.#topics.size}`;
        this.#topics.set(topic, []);
        return topic;
      },
      read: (topic, count) => this.#read(topic, count),
      oversizedBytes: MemoryBroker.messageBytesMax + 1,
      malformed: (message) => ({ ...message, contentType: 'no content type' }),
      keyless: false,
      outage: {
        stop: async () => {
          await sleep(stopMs);
          this.state = 'stopped';
          this.stops++;
          this.wasAway = true;
        },
        start: async () => {
          this.state = 'running';
        },
      },
      freeze: {
        freeze: async () => {
          this.state = 'frozen';
        },
        thaw: async () => {
          this.state = 'running';
          this.#thawed.resolve();
          this.#thawed = deferred();
        },
      },
    };
  }

  async #read(topic: string, count: number): Promise<ReceivedMessage[]> {
    const arrived = this.#topics.get(topic) ?? [];
    const deadline = performance.now() + readMsMax;
    while (arrived.length < count) {
      if (performance.now() > deadline) throw new Error(`only ${arrived.length} messages in ${topic}`);
      await sleep(5);
    }
    return [...arrived];
  }
}

/** A publisher for it that does everything right. Those in the tests break one thing each. */
export class MemoryPublisher implements Publisher {
  readonly kind = 'memory';
  capabilities: PublisherCapabilities = {
    batchSizeMax: 500,
    batchBytesMax: 100_000,
    batchesInFlightMax: 4,
    ordered: true,
    keyRuns: true,
    deduplicates: false,
    cloudEventsPrefix: 'ce_',
  };
  protected readonly broker: MemoryBroker;
  protected readonly underWay = new Set<Promise<unknown>>();

  constructor(broker: MemoryBroker) {
    this.broker = broker;
  }

  async connect(signal: AbortSignal): Promise<void> {
    await this.broker.answer(signal);
  }

  publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const call = sendInKeyOrder(batch, 100, (message) => this.send(message, signal));
    this.underWay.add(call);
    void call.finally(() => this.underWay.delete(call));
    return call;
  }

  async health(signal: AbortSignal): Promise<void> {
    await this.broker.answer(signal);
  }

  async close(): Promise<void> {
    if (this.broker.state === 'running') await Promise.all(this.underWay);
  }

  protected async send(message: Message, signal: AbortSignal): Promise<PublishOutcome> {
    await this.broker.answer(signal);
    const refusal = this.refusal(message);
    if (refusal) return refusal;
    this.broker.store(message.topic, this.received(message));
    return delivered;
  }

  protected refusal({ body, contentType }: Message): PublishOutcome | undefined {
    if (body.length > MemoryBroker.messageBytesMax) return { kind: 'rejected', reason: 'too large' };
    if (!contentType.includes('/')) return { kind: 'rejected', reason: 'no content type' };
    return undefined;
  }

  protected received({ body, key, headers, contentType, eventId, deduplicationId }: Message): ReceivedMessage {
    const bytes = Buffer.from(body as string);
    return { body: bytes.toString(), bodyBytes: bytes, key, headers, contentType, eventId, deduplicationId };
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  setMaxListeners(0, signal);
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
