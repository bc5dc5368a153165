import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { delivered, type Message, type PublishOutcome } from '../../src/publishers/publisher.ts';
import { MemoryPublisher } from './memory-broker.ts';

type Batch = readonly Message[];

/** For a broker that drops a second message with the same deduplication id. */
export class DeduplicatingPublisher extends MemoryPublisher {
  override capabilities = { ...new MemoryPublisher(this.broker).capabilities, deduplicates: true };
  readonly #stored = new Set<string | undefined>();

  protected override async send(message: Message, signal: AbortSignal): Promise<PublishOutcome> {
    const { deduplicationId } = this.received(message);
    if (this.#stored.has(deduplicationId)) return delivered;
    const outcome = await super.send(message, signal);
    if (outcome.kind === 'delivered') this.#stored.add(deduplicationId);
    return outcome;
  }
}

export interface BrokenPublisher {
  publisher: typeof MemoryPublisher;
  /** The checks that must notice, by the start of their names. */
  fails: string[];
}

/** What publishers were seen to do wrong with messages and batches. */
export const brokenPublishers: Record<string, BrokenPublisher> = {
  'has no place for the event id': {
    fails: ['the event id arrives', 'an event for two targets', 'a redelivery carries'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        return { ...super.received(message), eventId: undefined };
      }
    },
  },
  'deduplicates by the event id alone': {
    fails: ['the deduplication id is in the field', 'an event for two targets'],
    publisher: class extends DeduplicatingPublisher {
      protected override received(message: Message) {
        return { ...super.received(message), deduplicationId: message.eventId };
      }
    },
  },
  'gives a redelivery a new id': {
    fails: ['an event for two targets', 'a redelivery carries'],
    publisher: class extends MemoryPublisher {
      readonly #seen = new Set<string>();
      protected override received(message: Message) {
        const again = this.#seen.has(message.eventId);
        this.#seen.add(message.eventId);
        return { ...super.received(message), eventId: again ? randomUUID() : message.eventId };
      }
    },
  },
  'claims a deduplication that it does not have': {
    fails: ['a redelivery carries'],
    publisher: class extends MemoryPublisher {
      override capabilities = { ...new MemoryPublisher(this.broker).capabilities, deduplicates: true };
    },
  },
  'loses the key': {
    fails: ['the key arrives', 'a key beyond ASCII'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        return { ...super.received(message), key: null };
      }
    },
  },
  'loses headers': {
    fails: ['body, content type and headers', 'a header beyond ASCII', 'a header of many digits'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        return { ...super.received(message), headers: {} };
      }
    },
  },
  'garbles headers that are not ASCII': {
    fails: ['a header beyond ASCII'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        const garbled = Object.entries(message.headers).map(([name, value]) => [
          name,
          Buffer.from(value).toString('latin1'),
        ]);
        return { ...super.received(message), headers: Object.fromEntries(garbled) };
      }
    },
  },
  'loses the content type': {
    fails: ['body, content type and headers', 'a message without headers'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        return { ...super.received(message), contentType: undefined };
      }
    },
  },
  'garbles text that is not ASCII': {
    fails: ['text beyond ASCII'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        if (typeof message.body !== 'string') return super.received(message);
        return { ...super.received(message), body: Buffer.from(message.body).toString('latin1') };
      }
    },
  },
  'makes numbers of headers of digits': {
    fails: ['a header of many digits'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        const digits = ([name, value]: [string, string]) => [name, /^\d+$/.test(value) ? String(Number(value)) : value];
        return super.received({ ...message, headers: Object.fromEntries(Object.entries(message.headers).map(digits)) });
      }
    },
  },
  'takes bytes for text': {
    fails: ['a body of bytes that are not text'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        return super.received({ ...message, body: Buffer.from(message.body as string).toString() });
      }
    },
  },
  'writes bytes as a list of numbers': {
    fails: ['a body of bytes that are text', 'a body of bytes that are not text'],
    publisher: class extends MemoryPublisher {
      protected override received(message: Message) {
        return super.received({ ...message, body: String(message.body) });
      }
    },
  },
  'turns large batches round': {
    fails: ['order per key'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal) {
        return super.publish(batch.length === 200 ? batch.toReversed() : batch, signal);
      }
    },
  },
  'lets a batch pass the one before': {
    fails: ['order per key'],
    publisher: class extends MemoryPublisher {
      #calls = 0;
      override async publish(batch: Batch, signal: AbortSignal): Promise<readonly PublishOutcome[]> {
        if (batch.length !== 200 || this.#calls++ > 0) return super.publish(batch, signal);
        void sleep(50).then(() => super.publish(batch, signal));
        return batch.map(() => delivered);
      }
    },
  },
  'forgets an outcome': {
    fails: ['every message has an outcome'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal) {
        return (await super.publish(batch, signal)).slice(0, 499);
      }
    },
  },
  'takes fewer messages than it declares': {
    fails: ['every message has an outcome'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal): Promise<readonly PublishOutcome[]> {
        if (batch.length <= 300) return super.publish(batch, signal);
        return batch.map(() => ({ kind: 'failed', reason: 'too many' }));
      }
    },
  },
  'takes fewer bytes than it declares': {
    fails: ['a batch of as many bytes'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal): Promise<readonly PublishOutcome[]> {
        if (batch.reduce((sum, { bytes }) => sum + bytes, 0) < 90_000) return super.publish(batch, signal);
        return batch.map(() => ({ kind: 'failed', reason: 'too many bytes' }));
      }
    },
  },
  'declares that it takes no calls': {
    fails: ['its capabilities make sense'],
    publisher: class extends MemoryPublisher {
      override capabilities = { ...new MemoryPublisher(this.broker).capabilities, batchesInFlightMax: 0.5 };
    },
  },
  'throws at an empty batch': {
    fails: ['an empty batch'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal) {
        if (batch.length === 0) throw new Error('nothing to publish');
        return super.publish(batch, signal);
      }
    },
  },
  'takes one call at a time': {
    fails: ['calls side by side', 'close() flushes'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal): Promise<readonly PublishOutcome[]> {
        if (this.underWay.size === 0) return super.publish(batch, signal);
        return batch.map(() => ({ kind: 'failed', reason: 'busy' }));
      }
    },
  },
  'rejects a batch for one message': {
    fails: ['an oversized message in a batch', 'an oversized message without a key'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal): Promise<readonly PublishOutcome[]> {
        if (batch.every(({ body }) => body.length < 10_000)) return super.publish(batch, signal);
        return batch.map(() => ({ kind: 'rejected', reason: 'too large' }));
      }
    },
  },
  'takes the unordered along with a malformed one': {
    fails: ['a malformed message without a key'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal): Promise<readonly PublishOutcome[]> {
        const malformed = batch.some((message) => message.key === null && this.refusal(message) && message.bytes < 100);
        return malformed ? batch.map(() => ({ kind: 'rejected', reason: 'one is bad' })) : super.publish(batch, signal);
      }
    },
  },
  'takes an oversized message for an outage': {
    fails: ['an oversized message is', 'an oversized message in a batch', 'an oversized message without a key'],
    publisher: class extends MemoryPublisher {
      protected override refusal(message: Message): PublishOutcome | undefined {
        const refusal = super.refusal(message);
        return message.bytes > 10_000 && refusal ? { kind: 'unavailable', reason: 'it hung up' } : refusal;
      }
    },
  },
  'lets messages pass one of their key that failed': {
    fails: ['an oversized message in a batch', 'a malformed message in a batch'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal): Promise<readonly PublishOutcome[]> {
        if (!batch.some((message) => this.refusal(message))) return super.publish(batch, signal);
        return Promise.all(batch.map((message) => this.send(message, signal)));
      }
    },
  },
  'delivers what it says it held back': {
    fails: ['an oversized message in a batch', 'a malformed message in a batch'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal): Promise<readonly PublishOutcome[]> {
        const outcomes = await super.publish(batch, signal);
        for (const [index, message] of batch.entries()) {
          if (outcomes[index]?.kind === 'released' && this.broker.state === 'running') await this.send(message, signal);
        }
        return outcomes;
      }
    },
  },
};
