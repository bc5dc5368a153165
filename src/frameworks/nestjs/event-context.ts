import type { HandlerContext } from '../../relay/deliver/handlers.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';
import { headerNames } from './outbox-event.ts';

/** The second argument of a handler. */
export class OutboxEventContext<Payload = unknown> implements HandlerContext {
  /** The event: id, type, aggregate, headers, when it was emitted. */
  readonly event: DeliveredEvent<Payload>;
  readonly #call: HandlerContext;

  constructor(event: DeliveredEvent<Payload>, call: HandlerContext) {
    this.event = event;
    this.#call = call;
  }

  get eventId(): string {
    return this.event.id;
  }
  get eventType(): string {
    return this.event.type;
  }
  get headers(): Readonly<Record<string, string>> {
    return this.event.headers;
  }
  /** The option `tenantId` of `emit`, or `null`. */
  get tenantId(): string | null {
    return this.headers[headerNames.tenantId] ?? null;
  }
  /** The option `correlationId` of `emit`, or `null`. */
  get correlationId(): string | null {
    return this.headers[headerNames.correlationId] ?? null;
  }
  /** The option `causationId` of `emit`, or `null`. */
  get causationId(): string | null {
    return this.headers[headerNames.causationId] ?? null;
  }
  /** Failed attempts before this one. */
  get retryCount(): number {
    return this.attempt - 1;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }
  get attempt(): number {
    return this.#call.attempt;
  }
  /** That of this handler with this event. The option of `emit` is in `headers['idempotency-key']`. */
  get idempotencyKey(): string {
    return this.#call.idempotencyKey;
  }
  get handler(): string {
    return this.#call.handler;
  }
  get tx(): HandlerContext['tx'] {
    return this.#call.tx;
  }
  progress(fraction: number, note?: string): void {
    this.#call.progress(fraction, note);
  }
  extendTimeout(ms: number): void {
    this.#call.extendTimeout(ms);
  }
}
