import { type InspectOptions, inspect } from 'node:util';

const noHeaders: Readonly<Record<string, string>> = Object.freeze({});

/** What a lane knows of an event when it hands the event over. */
export interface EventRow {
  readonly seq: string;
  readonly id: string;
  readonly type: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly schemaVersion: number;
  /** `null`: ordered by its aggregate. Empty: not ordered. */
  readonly orderingKey: string | null;
  readonly replayId: string | null;
  readonly createdAtMs: number;
  /** JSON text. */
  readonly headersJson: string;
}

/**
 * An event as a handler or publisher gets it. The payload stays the text that PostgreSQL sent and is parsed on first access:
 * half of what a row costs in Node is JSON.parse.
 */
export class DeliveredEvent<Payload = unknown, Type extends string = string> {
  readonly #row: EventRow;
  readonly #newest: { readonly payload: unknown; readonly version: number } | undefined;
  #payload: Payload | undefined;
  #headers: Readonly<Record<string, string>> | undefined;
  readonly #payloadJson: string;
  /** A copy: the row loses loaded headers when its delivery ends, and a handler may still run then. */
  readonly #headersJson: string;

  /** `newest`: what the catalogue makes of the payload. */
  constructor(row: EventRow, payloadJson: string, newest?: { readonly payload: unknown; readonly version: number }) {
    this.#row = row;
    this.#newest = newest;
    this.#payloadJson = payloadJson;
    this.#headersJson = row.headersJson;
  }

  /** The event's identity: the same on every redelivery. */
  get id(): string {
    return this.#row.id;
  }
  get type(): Type {
    return this.#row.type as Type;
  }
  get aggregate(): { readonly type: string; readonly id: string } {
    return { type: this.#row.aggregateType, id: this.#row.aggregateId };
  }
  /** The version of `payload`: for a handler of a relay with a catalogue the newest, otherwise that of `payloadJson`. */
  get schemaVersion(): number {
    return this.#newest?.version ?? this.#row.schemaVersion;
  }
  /** The version that was emitted: that of `payloadJson`. */
  get storedVersion(): number {
    return this.#row.schemaVersion;
  }
  /**
   * Position in the log, a bigint as text. It increases with commit order within an aggregate (or ordering key), with gaps, and
   * says nothing about the order of two aggregates. A redelivery and a replay have the same.
   */
  get seq(): string {
    return this.#row.seq;
  }
  /**
   * Set when an operator replays the event: a new value for each replay, the same for all attempts of one replay. `null`
   * for an event that was never replayed.
   */
  get replayId(): string | null {
    return this.#row.replayId;
  }
  /** The ordering key: `type:id` of the aggregate unless the event was emitted with a key; `null` when it is not ordered. */
  get key(): string | null {
    return this.#row.orderingKey === null
      ? `${this.#row.aggregateType}:${this.#row.aggregateId}`
      : this.#row.orderingKey || null;
  }
  /** The key that brokers order and partition by: the aggregate's id or the event's own key; `null` when it is not ordered. */
  get partitionKey(): string | null {
    return this.#row.orderingKey === null ? this.#row.aggregateId : this.#row.orderingKey || null;
  }
  /** When it was emitted, by the database's clock. */
  get occurredAt(): Date {
    return new Date(this.#row.createdAtMs);
  }
  /** The same in milliseconds since 1970. */
  get occurredAtMs(): number {
    return this.#row.createdAtMs;
  }
  /** The payload as JSON text, as stored. */
  get payloadJson(): string {
    return this.#payloadJson;
  }
  /**
   * The parsed payload; for a handler of a relay with a catalogue, the output of its schema. Numbers beyond 2^53 lose digits here;
   * `payloadJson` has them.
   */
  get payload(): Payload {
    if (this.#newest !== undefined) return this.#newest.payload as Payload;
    this.#payload ??= JSON.parse(this.#payloadJson) as Payload;
    return this.#payload;
  }
  /** The headers as JSON text, as stored. */
  get headersJson(): string {
    return this.#headersJson;
  }
  /** Strings, unless plain SQL inserted other values, such as `{"n": 5}`. Numbers beyond 2^53 lose digits here, as in `payload`. */
  get headers(): Readonly<Record<string, string>> {
    this.#headers ??=
      this.#headersJson === '{}' ? noHeaders : (JSON.parse(this.#headersJson) as Record<string, string>);
    return this.#headers;
  }

  /** What `console.log` shows. */
  [inspect.custom](_depth: number, options: InspectOptions): string {
    const { id, type, aggregate, schemaVersion, seq, occurredAt, headers, payload } = this;
    return `DeliveredEvent ${inspect({ id, type, aggregate, schemaVersion, seq, occurredAt, headers, payload }, options)}`;
  }
}
