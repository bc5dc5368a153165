import type { DeliveredEvent } from './delivered-event.ts';

/**
 * Turns an event into the message body, content type and headers. Set per destination; the envelope is the default. It
 * may be asynchronous, e.g. to ask a schema registry. An error is a failed attempt; `throw new Reject(…)` makes the event
 * a dead letter; `throw new Unavailable(…)` counts no attempt, and the events of the destination wait.
 *
 * @example
 * import type { Serializer } from 'postcommit';
 *
 * const avro: Serializer = {
 *   serialize: (event) => ({ body: orderType.toBuffer(event.payload), contentType: 'application/avro' }),
 * };
 */
export interface Serializer {
  serialize(event: DeliveredEvent, binding: WireBinding): Serialized | Promise<Serialized>;
  /**
   * Checks that what it depends on can be used. Rejects when it cannot. Needed by a serializer that throws `Unavailable`: the relay
   * asks it, and the publisher, whether the destination is down, and when it is up again. With it, a serializer that does not answer
   * within `publishTimeoutMs` counts as unavailable, and without it as failed.
   */
  health?(signal: AbortSignal): Promise<void>;
}

/** What a serializer may need to know about the broker. */
export interface WireBinding {
  /** How CloudEvents' binary mode names attributes in headers. */
  readonly cloudEventsPrefix: string;
  /** Where the message goes, as the route says: topic, queue, subject, stream, URL. */
  readonly topic: string;
}

export interface Serialized {
  readonly body: string | Uint8Array;
  readonly contentType: string;
  /** Headers of the message. Those of the event and of the route are added where these do not name them. */
  readonly headers?: Readonly<Record<string, string>>;
}
