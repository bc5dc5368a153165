import type { Message, Publisher } from '../publishers/publisher.ts';

/** What the conformance suite needs to know of a broker: how to make a publisher for it, and how to read back. */
export interface PublisherHarness {
  /** A new publisher, not connected yet, for the broker under test. The suite connects and closes it. */
  createPublisher(): Publisher;
  /** A new, empty place to publish to, ready for use: its name is used as `Message.topic`. */
  createTopic(): Promise<string>;
  /** Resolves with what arrived in the topic, in order, once there are `count` messages; rejects after 20 s. */
  read(topic: string, count: number): Promise<ReceivedMessage[]>;
  /** A body of this many bytes is over the broker's limit. Leave out where there is none that a test can reach. */
  oversizedBytes?: number;
  /** Changes a good message into one that the broker can never take, for another reason than its size. */
  malformed?(message: Message): Message;
  /** Takes the broker away and brings it back, with what it had stored. Leave out where that is not possible. */
  outage?: { stop(): Promise<void>; start(): Promise<void> };
  /** Makes the broker accept connections and never answer, and lets it go on. */
  freeze?: { freeze(): Promise<void>; thaw(): Promise<void> };
}

/** A message as a consumer of the broker sees it. */
export interface ReceivedMessage {
  body: string;
  /** `null` where it has none, or the broker has no such thing. */
  key: string | null;
  headers: Record<string, string>;
  contentType: string | undefined;
  /** What the broker's own deduplication goes by: the message id, deduplication id, `Nats-Msg-Id`, id header. */
  deduplicationId: string | undefined;
}

/** One check of the suite, for any test runner. */
export interface ConformanceCheck {
  name: string;
  run(): Promise<void>;
}
