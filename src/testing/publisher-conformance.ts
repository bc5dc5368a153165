import type { Message, Publisher } from '../publishers/publisher.ts';
import { arrivalChecks } from './conformance-arrival.ts';
import { batchChecks } from './conformance-batch.ts';
import { failureChecks } from './conformance-failure.ts';
import { lifecycleChecks } from './conformance-lifecycle.ts';
import { outageChecks } from './conformance-outage.ts';

/** What the conformance suite needs to know of a broker: how to make a publisher for it, and how to read back. */
export interface PublisherHarness {
  /** A new publisher, not connected yet, for the broker under test. The suite connects and closes it. */
  createPublisher(): Publisher;
  /** A new, empty place to publish to, ready for use: its name is used as `Message.topic`. */
  createTopic(): Promise<string>;
  /**
   * Resolves with what arrived in the topic, in order, once there are `count` messages; rejects after 20 s. Always from
   * the topic's beginning, even when it is called again: where reading takes a message away, keep what was read.
   */
  read(topic: string, count: number): Promise<ReceivedMessage[]>;
  /** A body of this many bytes is over the broker's limit. Leave out where there is none that a test can reach. */
  oversizedBytes?: number;
  /** Changes a good message into one that the broker can never take, for another reason than its size. */
  malformed?(message: Message): Message;
  /** Takes the broker away and brings it back, with what it had stored. Leave out where that is not possible. */
  outage?: { stop(): Promise<void>; start(): Promise<void> };
  /** Makes the broker accept connections and never answer, and lets it go on. */
  freeze?: { freeze(): Promise<void>; thaw(): Promise<void> };
  /** True where the broker has no place for a key, so that `ReceivedMessage.key` is always `null`. Default false. */
  keyless?: boolean;
}

/** A message as a consumer of the broker sees it. */
export interface ReceivedMessage {
  body: string;
  /** The body byte by byte. Without it, bodies that are not text are compared as text or base64, whichever fits. */
  bodyBytes?: Uint8Array;
  /** `null` where it has none, or the broker has no such thing. */
  key: string | null;
  headers: Record<string, string>;
  contentType: string | undefined;
  /** The event's id, from where consumers read it: a header, an attribute, the broker's message id. */
  eventId: string | undefined;
  /** What the broker itself deduplicates by (`Nats-Msg-Id`, …). Leave out where it does not deduplicate. */
  deduplicationId?: string | undefined;
}

/** One check of the suite, for any test runner. */
export interface ConformanceCheck {
  name: string;
  /** Takes up to two minutes where the broker is stopped and started. */
  run(): Promise<void>;
}

/**
 * What every publisher must do, as checks to run against its real broker, one after the other: they stop and freeze it.
 * What the harness leaves out is not checked.
 *
 * @example
 * import { it } from 'vitest';
 * import { publisherConformance } from 'postcommit/testing';
 *
 * for (const check of publisherConformance(harness)) it(check.name, check.run, 120_000);
 */
export function publisherConformance(harness: PublisherHarness): ConformanceCheck[] {
  return [
    ...arrivalChecks(harness),
    ...batchChecks(harness),
    ...failureChecks(harness),
    ...lifecycleChecks(harness),
    ...outageChecks(harness),
  ];
}
