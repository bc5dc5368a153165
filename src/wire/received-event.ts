/** An event as a consumer reads it from a message of its broker, whatever the wire format. */
export interface ReceivedEvent<Type extends string = string, Payload = unknown> {
  /** The event's identity, a UUID: the same on every redelivery. */
  readonly id: string;
  readonly type: Type;
  /** Numbers beyond 2^53 lose digits here; the body of the message has them. */
  readonly payload: Payload;
  /** The version of its type's schema that the payload follows. */
  readonly schemaVersion: number;
  /** What it happened to; `null` in CloudEvents of other systems. */
  readonly aggregate: { readonly type: string; readonly id: string } | null;
  /** What it is ordered by; `null` when it is not ordered. */
  readonly key: string | null;
  /** Position in the log, a bigint as text; `null` in CloudEvents of other systems. It increases within a key, with gaps. */
  readonly seq: string | null;
  /** When it was emitted, by the clock of the outbox's database; `null` in CloudEvents without a time. */
  readonly occurredAt: Date | null;
  /** The headers of the message, by lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
}

/** A message as its broker delivers it. */
export interface IncomingMessage {
  readonly body: string | Uint8Array;
  /** By lower-case name. Not needed for an envelope, nor for a structured CloudEvent with `contentType`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly contentType?: string | undefined;
  /** The broker's own key, where it has one. */
  readonly key?: string | null | undefined;
}
