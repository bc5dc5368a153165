import { setTimeout as sleep } from 'node:timers/promises';
import type { Message, Publisher, PublisherCapabilities, PublishOutcome } from '../../src/publishers/publisher.ts';

/** What a call does: return an outcome per message, be unreachable, refuse the relay, throw, or never answer. */
export type Mood = 'up' | 'away' | 'refusing' | 'throwing' | 'silent';

/**
 * A publisher whose broker is a list, for tests of how the relay handles outcomes. Tests of publishers use real
 * brokers. It keeps the contract: order per key in a batch, nothing delivered behind a failed message of its key.
 */
export class ScriptedPublisher implements Publisher {
  readonly kind = 'scripted';
  readonly capabilities: PublisherCapabilities;
  /** Everything that arrived, in order. */
  readonly received: Message[] = [];
  readonly batches: number[] = [];
  mood: Mood = 'up';
  /** How long each call takes. */
  tookMs = 0;
  underWay = 0;
  underWayMax = 0;
  connects = 0;
  closes = 0;
  probes = 0;
  /** What to answer for a message while it is up. Default: ok. */
  outcomeOf: (message: Message) => PublishOutcome = () => ({ kind: 'delivered' });

  constructor(capabilities: Partial<PublisherCapabilities> = {}) {
    this.capabilities = {
      batchSizeMax: 50,
      batchBytesMax: 1_000_000,
      batchesInFlightMax: 2,
      ordered: true,
      keyRuns: true,
      deduplicates: false,
      cloudEventsPrefix: 'ce-',
      ...capabilities,
    };
  }

  async connect(): Promise<void> {
    this.connects++;
    await this.health();
  }

  async publish(batch: readonly Message[], signal: AbortSignal): Promise<PublishOutcome[]> {
    this.batches.push(batch.length);
    this.underWay++;
    this.underWayMax = Math.max(this.underWayMax, this.underWay);
    try {
      if (this.tookMs > 0) await sleep(this.tookMs);
      if (this.mood === 'silent') await new Promise((_, fail) => signal.addEventListener('abort', fail));
      if (this.mood === 'throwing') throw new Error('a bug in the publisher');
      return this.#answer(batch);
    } catch (error) {
      if (this.mood === 'throwing') throw error;
      return batch.map(() => ({ kind: 'unavailable', reason: 'no answer in time' }));
    } finally {
      this.underWay--;
    }
  }

  async health(): Promise<void> {
    this.probes++;
    if (this.mood === 'away' || this.mood === 'silent') throw new Error('connection refused');
  }

  async close(): Promise<void> {
    this.closes++;
  }

  #answer(batch: readonly Message[]): PublishOutcome[] {
    const failedKeys = new Set<string>();
    return batch.map((message) => {
      if (this.mood === 'away') return { kind: 'unavailable', reason: 'connection refused' };
      const isBehind = message.key !== null && failedKeys.has(message.key);
      const outcome: PublishOutcome = isBehind ? { kind: 'released', reason: 'not sent' } : this.outcomeOf(message);
      if (outcome.kind === 'delivered') this.received.push(message);
      else if (message.key !== null) failedKeys.add(message.key);
      return outcome;
    });
  }
}
