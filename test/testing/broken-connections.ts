import { setTimeout as sleep } from 'node:timers/promises';
import { PostcommitError } from '../../src/errors.ts';
import { sendInKeyOrder } from '../../src/publishers/key-order.ts';
import { delivered, type Message, type PublishOutcome } from '../../src/publishers/publisher.ts';
import type { BrokenPublisher } from './broken-publishers.ts';
import { MemoryPublisher } from './memory-broker.ts';

type Batch = readonly Message[];

/** Stands for a promise that never settles, but lets the test process end. */
const never = () => sleep(60_000, undefined, { ref: false });

/** What publishers were seen to do wrong when the broker is down, and when they connect and close. */
export const brokenConnections: Record<string, BrokenPublisher> = {
  'throws while the broker is stopped': {
    fails: ['a broker that is stopped'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal) {
        if (this.broker.state === 'stopped') throw new Error('connection refused');
        return super.publish(batch, signal);
      }
    },
  },
  'blames the messages while the broker is stopped': {
    fails: ['a broker that is stopped'],
    publisher: class extends MemoryPublisher {
      override publish(batch: Batch, signal: AbortSignal) {
        return sendInKeyOrder(batch, 100, async (message) => {
          if (this.broker.state === 'stopped') return { kind: 'failed', reason: 'connection refused' };
          return this.send(message, signal);
        });
      }
    },
  },
  'answers ok before the broker has it': {
    fails: ['a broker that is stopped'],
    publisher: class extends MemoryPublisher {
      protected override async send(message: Message, signal: AbortSignal) {
        const { state, stops } = this.broker;
        if (state !== 'running' || this.refusal(message)) return super.send(message, signal);
        const stored = sleep(200).then(async () => {
          if (this.broker.stops === stops) await super.send(message, signal);
        });
        this.underWay.add(stored);
        stored.catch(() => {}).finally(() => this.underWay.delete(stored));
        return delivered;
      }
    },
  },
  'stays unavailable when the broker is up again': {
    fails: ['a broker that is stopped'],
    publisher: class extends MemoryPublisher {
      #lost = false;
      protected override async send(message: Message, signal: AbortSignal): Promise<PublishOutcome> {
        this.#lost ||= this.broker.state === 'stopped';
        if (this.#lost && this.broker.state === 'running') return { kind: 'unavailable', reason: 'lost' };
        return super.send(message, signal);
      }
    },
  },
  'hangs with the broker': {
    fails: ['a broker that never answers'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal) {
        if (this.broker.state === 'frozen') await never();
        return super.publish(batch, signal);
      }
    },
  },
  'is always healthy': {
    fails: ['a broker that is stopped', 'a broker that never answers'],
    publisher: class extends MemoryPublisher {
      override async health() {}
    },
  },
  'is not healthy before its first outage': {
    fails: ['health() resolves', 'close() leaves no connection'],
    publisher: class extends MemoryPublisher {
      override async health(signal: AbortSignal) {
        await this.broker.answer(signal);
        if (!this.broker.wasAway) throw new Error('out of order');
      }
    },
  },
  'hangs when it connects to a broker that hangs': {
    fails: ['connect() to a broker that never answers'],
    publisher: class extends MemoryPublisher {
      override async connect(signal: AbortSignal) {
        if (this.broker.state === 'frozen') await never();
        return super.connect(signal);
      }
    },
  },
  'connects without a broker': {
    fails: ['connect() to a broker that is stopped', 'connect() to a broker that never answers'],
    publisher: class extends MemoryPublisher {
      override async connect() {}
    },
  },
  'takes an absent broker for a refusal': {
    fails: ['connect() to a broker that is stopped'],
    publisher: class extends MemoryPublisher {
      override async connect(signal: AbortSignal) {
        if (this.broker.state === 'stopped') throw new PostcommitError('POSTCOMMIT_E_DESTINATION_REFUSED', 'no');
        return super.connect(signal);
      }
    },
  },
  'drops what is under way when it closes': {
    fails: ['close() flushes'],
    publisher: class extends MemoryPublisher {
      #closed = false;
      override async connect(signal: AbortSignal) {
        await super.connect(signal);
        this.#closed = false;
      }
      override async close() {
        this.#closed = true;
      }
      protected override async send(message: Message, signal: AbortSignal) {
        await this.broker.answer(signal);
        return this.#closed ? delivered : super.send(message, signal);
      }
    },
  },
  'does not end the calls under way when it closes': {
    fails: ['close() flushes'],
    publisher: class extends MemoryPublisher {
      #closed = false;
      override async close() {
        this.#closed ||= this.underWay.size > 0;
      }
      protected override async send(message: Message, signal: AbortSignal) {
        await this.broker.answer(signal);
        if (this.#closed) await never();
        return super.send(message, signal);
      }
    },
  },
  'cannot be closed twice': {
    fails: ['close() can be called'],
    publisher: class extends MemoryPublisher {
      #closed = 0;
      override async connect(signal: AbortSignal) {
        await super.connect(signal);
        this.#closed = 0;
      }
      override async close() {
        if (this.#closed++ > 1) throw new Error('closed already');
        await super.close();
      }
    },
  },
  'cannot be connected again': {
    fails: ['it can be connected again'],
    publisher: class extends MemoryPublisher {
      #used = false;
      #closed = false;
      override async close() {
        this.#closed = this.#used;
        await super.close();
      }
      protected override async send(message: Message, signal: AbortSignal): Promise<PublishOutcome> {
        this.#used = true;
        return this.#closed ? { kind: 'unavailable', reason: 'closed' } : super.send(message, signal);
      }
    },
  },
  'waits for a broker that hangs when it closes': {
    fails: ['close() does not wait'],
    publisher: class extends MemoryPublisher {
      override async close() {
        if (this.broker.state === 'frozen') await this.broker.answer(new AbortController().signal);
        await super.close();
      }
    },
  },
  'does not look at its signal': {
    fails: ['a signal that is aborted already'],
    publisher: class extends MemoryPublisher {
      override async publish(batch: Batch, signal: AbortSignal) {
        if (signal.aborted) await sleep(2_500);
        return super.publish(batch, signal);
      }
    },
  },
};
