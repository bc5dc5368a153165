import type { ClaimedRow } from '../../outbox/delivering/claim.ts';

const noHeaders: Readonly<Record<string, string>> = Object.freeze({});

/**
 * An event as a handler or publisher gets it. The payload stays the text that PostgreSQL sent and is parsed on first access:
 * half of what a row costs in Node is JSON.parse.
 */
export class DeliveredEvent<Payload = unknown> {
  readonly #row: ClaimedRow;
  #payload: Payload | undefined;
  #headers: Readonly<Record<string, string>> | undefined;
  readonly #payloadJson: string;
  /** A copy: the row loses loaded headers when its delivery ends, and a handler may still run then. */
  readonly #headersJson: string;

  constructor(row: ClaimedRow, payloadJson: string) {
    this.#row = row;
    this.#payloadJson = payloadJson;
    this.#headersJson = row.headersJson;
  }

  /** The event's identity: the same on every redelivery. */
  get id(): string {
    return this.#row.id;
  }
  get type(): string {
    return this.#row.type;
  }
  get aggregate(): { readonly type: string; readonly id: string } {
    return { type: this.#row.aggregateType, id: this.#row.aggregateId };
  }
  get schemaVersion(): number {
    return this.#row.schemaVersion;
  }
  /** Position in the log, as text: it grows with commit order within an aggregate. */
  get seq(): string {
    return this.#row.seq;
  }
  /**
   * Set when an operator replays the event: another value for each replay, the same for all attempts of one. `null` for an
   * event that is delivered for the first time.
   */
  get replayId(): string | null {
    return this.#row.replayId;
  }
  /** What it is ordered by when that is not its aggregate; `null` when it is not ordered. */
  get key(): string | null {
    return this.#row.orderingKey === null
      ? `${this.#row.aggregateType}:${this.#row.aggregateId}`
      : this.#row.orderingKey || null;
  }
  /** What brokers order and partition by: the aggregate's id, or the key it was emitted with; `null` for no order. */
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
  /** The payload by JSON.parse: a number beyond 2^53 loses digits, which `payloadJson` has. */
  get payload(): Payload {
    this.#payload ??= JSON.parse(this.#payloadJson) as Payload;
    return this.#payload;
  }
  /** Text, unless plain SQL has inserted something else, such as `{"n": 5}`. */
  get headers(): Readonly<Record<string, string>> {
    this.#headers ??=
      this.#headersJson === '{}' ? noHeaders : (JSON.parse(this.#headersJson) as Record<string, string>);
    return this.#headers;
  }
}
