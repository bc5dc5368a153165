import type { Statement } from '../../database/executor.ts';
import { UnconvertedEvent } from '../../emit/check-events.ts';
import type { Emit, EmittedOnce } from '../../emit/emit-function.ts';
import type { OutboxEvent as PlainEvent } from '../../emit/event.ts';
import { Outbox as CoreOutbox } from '../../emit/outbox.ts';
import type { TransactionOptions } from '../../emit/outbox-database.ts';
import { PostcommitError } from '../../errors.ts';
import { unknownOption } from '../../suggest.ts';
import type { AggregateEvent, EmitOptions, EmitOptionsWithAggregate, OutboxEvent } from './outbox-event.ts';
import { isClassEvent, toPlainEvent } from './outbox-event.ts';

type Event = AggregateEvent | PlainEvent;

/** An event of `emitMany`, alone or with options of its own. */
export type EmitManyEntry =
  | Event
  | { event: Event; options?: EmitOptions }
  | { event: OutboxEvent; options: EmitOptionsWithAggregate };

/** `emit` of `outbox.transaction`, which takes events of classes too. */
export interface EmitInTransaction extends Emit {
  (event: Event, options?: EmitOptions): Promise<string>;
  (event: OutboxEvent, options: EmitOptionsWithAggregate): Promise<string>;
}

/**
 * The outbox as Nest injects it: that of `postcommit`, which also takes events of classes. `Tx` is the transaction of your database
 * client, e.g. `Outbox<Prisma.TransactionClient>`; without it, only the runtime checks what is passed.
 *
 * @example
 * import pg from 'pg';
 * import { Outbox } from 'postcommit/nestjs';
 *
 * class OrderService {
 *   readonly #outbox: Outbox<pg.PoolClient>;
 *
 *   constructor(outbox: Outbox<pg.PoolClient>) {
 *     this.#outbox = outbox;
 *   }
 *
 *   create(id: string, total: number) {
 *     return this.#outbox.transaction(async (tx, emit) => {
 *       await tx.query('insert into orders (id, total) values ($1, $2)', [id, total]);
 *       await emit({ type: 'order.created', aggregate: ['order', id], payload: { id, total } });
 *     });
 *   }
 * }
 */
// biome-ignore lint/suspicious/noExplicitAny: without a type argument any handle compiles, as in other Nest packages.
export class Outbox<Tx = any, BatchStatement = any> extends CoreOutbox<Tx, BatchStatement> {
  /** Writes an event in your open transaction and returns its id. */
  override emit(tx: Tx, event: Event, options?: EmitOptions): Promise<string>;
  override emit(tx: Tx, event: OutboxEvent, options: EmitOptionsWithAggregate): Promise<string>;
  override emit(tx: Tx, events: readonly PlainEvent[]): Promise<string[]>;
  override async emit(tx: Tx, given: unknown, options?: EmitOptions): Promise<never> {
    if (Array.isArray(given)) return (await this.emitMany(tx, given, options)) as never;
    return (await super.emit(tx, toPlainEvent(given, options))) as never;
  }

  /** Writes several events with one statement, and returns their ids. `options` are for all of them. */
  async emitMany(tx: Tx, entries: readonly EmitManyEntry[], options: EmitOptions = {}): Promise<string[]> {
    return super.emit(tx, toPlainEvents(entries, options));
  }

  override emitOnce(tx: Tx, event: Event, options?: EmitOptions & { id: string }): Promise<EmittedOnce>;
  override emitOnce(tx: Tx, events: readonly (PlainEvent & { id: string })[]): Promise<EmittedOnce[]>;
  override async emitOnce(tx: Tx, given: unknown, options?: EmitOptions): Promise<never> {
    type WithId = PlainEvent & { id: string };
    if (Array.isArray(given)) return (await super.emitOnce(tx, given as WithId[])) as never;
    return (await super.emitOnce(tx, toPlainEvent(given, options) as WithId)) as never;
  }

  /** An event as one statement of a batch: `prisma.$transaction([order, outbox.statement(event)])`. */
  override statement(event: Event, options?: EmitOptions): BatchStatement;
  override statement(event: OutboxEvent, options: EmitOptionsWithAggregate): BatchStatement;
  override statement(event: unknown, options?: EmitOptions): BatchStatement {
    return super.statement(unconverted(event, options));
  }

  override transaction<T>(
    work: (tx: Tx, emit: EmitInTransaction) => Promise<T>,
    options?: TransactionOptions,
  ): Promise<T>;
  override transaction(statements: readonly Statement[], event: Event, options?: TransactionOptions): Promise<string>;
  override transaction(
    statements: readonly Statement[],
    events: readonly Event[],
    options?: TransactionOptions,
  ): Promise<string[]>;
  override transaction(given: unknown, second?: unknown, options?: TransactionOptions): Promise<never> {
    if (typeof given !== 'function') {
      return super.transaction(given as readonly Statement[], unconverted(second), options) as Promise<never>;
    }
    const work = (tx: Tx, emit: Emit) => given(tx, takingClasses(emit)) as Promise<never>;
    return super.transaction(work, second as TransactionOptions);
  }
}

export function toPlainEvents(entries: readonly unknown[], options: EmitOptions): PlainEvent[] {
  if (!Array.isArray(entries)) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_EVENT',
      'emitMany() takes a list of events. For a single one, call emit().',
    );
  }
  return entries.map((entry) => entryToPlainEvent(entry, options));
}

function entryToPlainEvent(entry: unknown, options: EmitOptions): PlainEvent {
  if (!isEntry(entry)) return toPlainEvent(entry, options);
  // A misspelt name would silently mean no options.
  const unknown = unknownOption(entry, ['event', 'options'], 'An entry of emitMany()');
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_EVENT', unknown);
  return toPlainEvent(entry.event, { ...options, ...entry.options });
}

/** The form `{ event, options }`. An event of a class may have a property `event` of its own. */
function isEntry(given: unknown): given is { event: unknown; options?: EmitOptions } {
  return typeof given === 'object' && given !== null && !isClassEvent(given) && 'event' in given;
}

function takingClasses(emit: Emit): EmitInTransaction {
  return ((given: unknown, options?: EmitOptions) => emit(unconverted(given, options))) as EmitInTransaction;
}

/** One event, or a list. The outbox converts them, because its transaction must fail with an event that cannot be converted. */
function unconverted(given: unknown, options: EmitOptions = {}): PlainEvent {
  const events = Array.isArray(given)
    ? given.map((entry) => new UnconvertedEvent(() => entryToPlainEvent(entry, options)))
    : new UnconvertedEvent(() => toPlainEvent(given, options));
  return events as unknown as PlainEvent;
}
