import type { OutboxEvent as PlainEvent } from '../../emit/event.ts';
import { PostcommitError } from '../../errors.ts';
import { unknownOption } from '../../suggest.ts';

export type Aggregate = PlainEvent['aggregate'];

/**
 * An event as a class. The class has its type, the instance its payload: all own properties, or what `toPayload()` returns.
 *
 * @example
 * import { OutboxEvent } from 'postcommit/nestjs';
 *
 * class OrderCreatedEvent extends OutboxEvent {
 *   static readonly eventType = 'order.created';
 *
 *   readonly orderId: string;
 *   readonly total: number;
 *
 *   constructor(orderId: string, total: number) {
 *     super();
 *     this.orderId = orderId;
 *     this.total = total;
 *   }
 *
 *   override aggregate() {
 *     return ['order', this.orderId] as const;
 *   }
 * }
 */
export abstract class OutboxEvent {
  /** What it happened to: a type and an id. Left out: `emit` must be given it. */
  aggregate?(): Aggregate;

  /** What handlers and destinations get. Default: the own properties of the event. */
  toPayload(): unknown {
    return { ...this };
  }

  getEventType(): string {
    return eventTypeOf(this.constructor);
  }
}

/** A class with a type: `static readonly eventType`. */
export interface EventClass {
  readonly eventType: string;
  readonly prototype: unknown;
}

/** An event of a class that says what it happened to. */
export type AggregateEvent = OutboxEvent & { aggregate(): Aggregate };

/**
 * What `emit` can be told beside the event. What is said here replaces what the event says. The headers that the last four become
 * are `tenant-id`, `correlation-id`, `causation-id` and `idempotency-key`.
 */
export interface EmitOptions
  extends Partial<
    Pick<
      PlainEvent,
      'id' | 'aggregate' | 'headers' | 'availableAt' | 'delayMs' | 'schemaVersion' | 'key' | 'attemptsMax' | 'queue'
    >
  > {
  /** The type of the aggregate, with `aggregateId`: another way to give `aggregate`. */
  aggregateType?: string | null;
  aggregateId?: string | number | bigint | null;
  /** Another name of `key`. */
  partitionKey?: string | null;
  tenantId?: string | null;
  correlationId?: string | null;
  causationId?: string | null;
  /** For the systems behind the handlers. Emitting twice with one key writes two events: `emitOnce` is for that. */
  idempotencyKey?: string | null;
}

/** Options that name the aggregate, for events whose class does not. */
export type EmitOptionsWithAggregate = EmitOptions &
  ({ aggregate: Aggregate } | { aggregateType: string; aggregateId: string | number | bigint });

/** Options that travel as headers. */
export const headerNames = {
  tenantId: 'tenant-id',
  correlationId: 'correlation-id',
  causationId: 'causation-id',
  idempotencyKey: 'idempotency-key',
} as const;

const passedOn = [
  'id',
  'availableAt',
  'delayMs',
  'schemaVersion',
  'key',
  'attemptsMax',
  'queue',
] as const satisfies readonly (keyof EmitOptions)[];

const optionNames: readonly string[] = [
  ...passedOn,
  'aggregate',
  'aggregateType',
  'aggregateId',
  'partitionKey',
  'headers',
  ...Object.keys(headerNames),
];

/** The type of an event's class. */
export function eventTypeOf(eventClass: unknown): string {
  const { eventType, name } = eventClass as { eventType?: unknown; name?: unknown };
  if (typeof eventType === 'string' && eventType !== '') return eventType;
  const shown = typeof name === 'string' && name !== '' ? name : 'The class of the event';
  throw new PostcommitError(
    'POSTCOMMIT_E_EVENT_CLASS',
    `${shown} has no type: add static readonly eventType = '...' to it.`,
  );
}

/** Converts an event, of a class or plain, with the options of `emit`, to what the outbox takes. */
export function toPlainEvent(given: unknown, options: EmitOptions = {}): PlainEvent {
  checkNames(options);
  const event = isClassEvent(given) ? fromClass(given, options) : (given as PlainEvent);
  // Without options the outbox checks the event itself.
  if (Object.keys(options).length === 0) return event;
  if (typeof event !== 'object' || event === null) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_EVENT', 'An event is an object with type, aggregate and payload.');
  }
  const aggregate = aggregateOf(options);
  const headers = headersOf(event, options);
  return {
    ...event,
    ...(aggregate && { aggregate }),
    ...(options.partitionKey != null && { key: options.partitionKey }),
    ...Object.fromEntries(
      passedOn.filter((name) => options[name] !== undefined).map((name) => [name, options[name]] as const),
    ),
    ...(headers && { headers }),
  };
}

/** Not `instanceof`: the event may be of another copy of the package, or of a class with only `eventType`. */
export function isClassEvent(given: unknown): given is object {
  if (typeof given !== 'object' || given === null) return false;
  if (given instanceof OutboxEvent || typeof (given as Partial<OutboxEvent>).toPayload === 'function') return true;
  return typeof (given.constructor as Partial<EventClass> | undefined)?.eventType === 'string';
}

function fromClass(event: object, options: EmitOptions): PlainEvent {
  const { toPayload, aggregate } = event as Partial<OutboxEvent>;
  const type = eventTypeOf(event.constructor);
  const found = aggregateOf(options) ?? (typeof aggregate === 'function' ? aggregate.call(event) : undefined);
  if (found === undefined) {
    throw new PostcommitError(
      'POSTCOMMIT_E_EVENT_CLASS',
      `${event.constructor.name} has no aggregate: add aggregate() { return ['order', this.orderId] } to it, or give emit the option aggregate. For an event without any order, give the option key: null too.`,
    );
  }
  const payload = typeof toPayload === 'function' ? toPayload.call(event) : { ...event };
  return { type, aggregate: found, payload };
}

function aggregateOf({ aggregate, aggregateType, aggregateId }: EmitOptions): Aggregate | undefined {
  if (aggregate !== undefined) return aggregate;
  if (aggregateType == null && aggregateId == null) return undefined;
  if (aggregateType != null && aggregateId != null) return [aggregateType, aggregateId];
  const [given, missing] = aggregateId == null ? ['Type', 'Id'] : ['Id', 'Type'];
  const detail = `emit() was given aggregate${given} without aggregate${missing}: give both, or aggregate: [type, id].`;
  throw new PostcommitError('POSTCOMMIT_E_BAD_EVENT', detail);
}

function headersOf(event: PlainEvent, options: EmitOptions): Record<string, string> | undefined {
  const names = Object.keys(headerNames) as (keyof typeof headerNames)[];
  const named = names
    .filter((name) => options[name] !== undefined && options[name] !== null)
    .map((name) => [headerNames[name], options[name] as string] as const);
  if (named.length === 0 && options.headers === undefined) return undefined;
  return { ...event.headers, ...options.headers, ...Object.fromEntries(named) };
}

function checkNames(options: EmitOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_EVENT', 'The third argument of emit() is an object of options.');
  }
  // A misspelt delayMs would silently mean no delay.
  const unknown = unknownOption(options, optionNames, 'emit()');
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_EVENT', unknown);
}
