import type { ServiceName } from '../../services/service.ts';
import type { Message, Publisher } from '../../src/publishers/publisher.ts';

/** One broker: the publisher that the relay uses, and the same client without Postcommit. */
export interface Broker {
  readonly name: string;
  /** The server to start; `http` is a server in a process of its own. */
  readonly service: ServiceName | 'http';
  /** The client's package, for its version; `undefined` where Node brings it. */
  readonly client: string | undefined;
  /** The ratio that the relay has to reach: for Kafka what was asked for, for others a floor well below what was measured. */
  readonly goal: number;
  /** The ratio to reach next. A run does not fail for it. */
  readonly nextGoal: number;
  /** Events in its backlog, as a part or a multiple of what the command line says: for several seconds, if it can. */
  readonly share: number;
  /** Makes a place to publish to, and answers its name. */
  createTopic(url: string): Promise<string>;
  /** Removes it, so that what one round left behind does not slow the next. */
  removeTopic?(url: string, topic: string): Promise<void>;
  createPublisher(url: string): Promise<Publisher>;
  /**
   * Publishes all events with the client alone, as its own documentation would have it done for speed, with the same
   * promise: every one confirmed. Resolves with the milliseconds it took; connecting is not counted.
   */
  publishAll(url: string, topic: string, events: readonly MemoryEvent[]): Promise<number>;
}

/** An event of an application that would publish it right away: writing it in the wire format is part of publishing. */
export interface MemoryEvent {
  toMessage(): Message;
}

/** Runs `work` for each item, so many at once; answers the milliseconds. */
export async function timed<T>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<unknown>,
): Promise<number> {
  const startedAtMs = performance.now();
  const rest = items.values();
  const worker = async () => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return performance.now() - startedAtMs;
}

export function chunked<T>(items: readonly T[], size: number): T[][] {
  const chunks: T[][] = [];
  for (let at = 0; at < items.length; at += size) chunks.push(items.slice(at, at + size));
  return chunks;
}
