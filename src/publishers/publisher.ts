/**
 * The contract between the relay and a broker. A publisher puts messages that are already routed and serialized into
 * one broker and returns the outcome of each. Everything else (retries, dead letters, the circuit breaker, order
 * across relays, routing, the wire format) is up to the relay.
 *
 * `postcommit/testing` has the conformance suite that a publisher must pass against its real broker.
 */
export interface Publisher {
  /** The kind of broker, e.g. `kafka`. Shown to operators, and part of error texts. */
  readonly kind: string;
  readonly capabilities: PublisherCapabilities;
  /** Only for a publisher that speaks to many servers, one of which may be slow while the others are not. */
  readonly parts?: PublisherParts;
  /**
   * Connects, once, before the first `publish`. The publisher itself replaces a connection that could not be made or that
   * breaks later, on the next call of `publish` or `health`. `connect` can be called again after `close()`.
   *
   * Throws a `PostcommitError` for a failure that waiting does not fix, above all `POSTCOMMIT_E_DESTINATION_REFUSED`
   * (credentials, an untrusted certificate): the relay then refuses to start. Any other error means that the broker is
   * unreachable: the relay starts and treats it as an outage. Ends soon after the signal is aborted.
   */
  connect(signal: AbortSignal): Promise<void>;
  /**
   * Publishes a batch and returns one outcome per message, in the order of the batch. Never rejects for an expected
   * failure, and returns soon after the signal is aborted, with `unavailable` for messages that may not have arrived.
   *
   * Order: messages of one key reach the broker in the order of the batch. When one of them fails, none behind it with
   * the same key may be delivered by this call; its outcome is then `released`.
   * One message that is too large or malformed never makes others of its batch fail.
   *
   * The relay makes up to `batchesInFlightMax` concurrent calls, but never two with messages of the same key.
   * Where there are `parts`, all messages of a batch go to the same one.
   */
  publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]>;
  /** Checks that the broker answers. Rejects when it does not. */
  health(signal: AbortSignal): Promise<void>;
  /** Flushes what is in flight and closes everything that would keep the process alive. Never rejects. */
  close(): Promise<void>;
}

/** Servers that do not depend on each other, e.g. the hosts of customers' URLs. The relay keeps them apart. */
export interface PublisherParts {
  /** The part that messages with this topic go to; `undefined` for what belongs to none. Does not throw. */
  of(topic: string): string | undefined;
  /**
   * Concurrent calls of `publish` at most for one part. While parts are slow, the relay makes up to half of
   * `batchesInFlightMax` additional calls for the others.
   */
  readonly inFlightMax: number;
}

/**
 * All but `answerMsMax` are required; limits are whole numbers from 1 on. `createRelay` refuses a publisher without them.
 */
export interface PublisherCapabilities {
  /** Messages per batch at most. */
  readonly batchSizeMax: number;
  /** Bytes of bodies, keys and headers per batch at most. A single larger message comes alone. */
  readonly batchBytesMax: number;
  /** Concurrent calls of `publish` at most. */
  readonly batchesInFlightMax: number;
  /** Whether the broker hands messages of one key to its consumers in the order they were published. */
  readonly ordered: boolean;
  /**
   * Whether several messages of one key may share a batch without making it slow. True where the broker takes or
   * refuses them together (Kafka). Otherwise the relay puts at most one message of a key into a batch.
   */
  readonly keyRuns: boolean;
  /** Whether the broker itself drops a second message with the same `deduplicationId`, within its own limits. */
  readonly deduplicates: boolean;
  /**
   * How long `publish` takes at most by the publisher's own time limits, in milliseconds: `publishTimeoutMs` of the
   * destination must be longer, and is by default. For a publisher whose limits decide what failed: when the relay's
   * limit fires first, everything in the batch counts as an outage. Left out: the relay's limit is the only one.
   */
  readonly answerMsMax?: number;
  /** How CloudEvents' binary mode names attributes in this broker's headers: `ce_type` in Kafka, `ce-type` in HTTP. */
  readonly cloudEventsPrefix: string;
}

/** An event on its way to a broker. */
export interface Message {
  /** The event's id, the same in every message about it. Consumers deduplicate by it, so they must be able to read it. */
  readonly eventId: string;
  /**
   * For the field by which the broker itself deduplicates, if it has one. It is the same for every attempt to send the
   * event to one target and differs between targets (a destination and a topic) and between replays: a broker that went
   * by the event's id would drop the copy for the second target. At most 80 characters: ASCII letters, digits, `-` and `.`.
   */
  readonly deduplicationId: string;
  readonly eventType: string;
  /** Where to, in the broker's terms: topic, routing key, subject, stream, queue, URL. */
  readonly topic: string;
  /** RabbitMQ only: the exchange, where the route names one. */
  readonly exchange?: string | undefined;
  /** What it is ordered by, and Kafka's partitioning key; `null` when it is not ordered. */
  readonly key: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly contentType: string;
  readonly body: string | Uint8Array;
  /** When it was emitted, by the database's clock. */
  readonly occurredAtMs: number;
  /** Bytes of body, key and headers. */
  readonly bytes: number;
}

/**
 * The outcome of one message. These five words are used for what happened to an event at a target everywhere: here, in the
 * relay's counters (`relay.stats()`) and in its lifecycle events.
 */
export type PublishOutcome =
  /** The broker has it, durably as far as it promises that. */
  | { readonly kind: 'delivered' }
  /**
   * The message failed by itself and may succeed later: the relay retries it and counts an attempt. `retryAfterMs`: not
   * before that; the relay caps it at `retryAfterMaxMs`.
   */
  | { readonly kind: 'failed'; readonly reason: string; readonly retryAfterMs?: number }
  /** It can never succeed: the event becomes a dead letter at once. */
  | { readonly kind: 'rejected'; readonly reason: string }
  /**
   * The broker is down: no attempt is counted, and the destination's circuit breaker opens, unless other events get through
   * and this event, or its topic, keeps failing alone.
   */
  | { readonly kind: 'unavailable'; readonly reason: string; readonly retryAfterMs?: number }
  /**
   * It was not sent because of other messages of its batch: the relay sends it again soon and counts no attempt. At least
   * one of those others must have another outcome; if none has, the relay sends the batch again a second later.
   */
  | { readonly kind: 'released'; readonly reason: string };

export const delivered: PublishOutcome = { kind: 'delivered' };
