import type { DeliveredEvent } from './delivered-event.ts';

/**
 * Turns an event into the message body, content type and headers. Set per destination; the envelope is the default. It
 * may be asynchronous, e.g. to ask a schema registry. An error is a failed attempt; `throw new Reject(…)` makes the event
 * a dead letter.
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
}

/** What a serializer may need to know about the broker. */
export interface WireBinding {
  /** How CloudEvents' binary mode names attributes in headers. */
  readonly cloudEventsPrefix: string;
}

export interface Serialized {
  readonly body: string | Uint8Array;
  readonly contentType: string;
  /** Headers of the message. Those of the event and of the route are added where these do not name them. */
  readonly headers?: Readonly<Record<string, string>>;
}
