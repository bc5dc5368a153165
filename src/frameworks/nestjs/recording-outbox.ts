import type { OutboxEvent as PlainEvent } from '../../emit/event.ts';
import { checkFields } from '../../emit/event.ts';
import { toPlainEvents } from './outbox.ts';
import type { EmitOptions } from './outbox-event.ts';
import { toPlainEvent } from './outbox-event.ts';

const limits = { events: undefined, payloadBytesMax: 1_048_576, queueOf: undefined };

/**
 * An outbox for unit tests: keeps events in memory and needs no database. It checks events as the real one does, and does not look at
 * the transaction.
 *
 * @example
 * import { RecordingOutbox } from 'postcommit/nestjs';
 *
 * const recorded = new RecordingOutbox();
 * // Test.createTestingModule({ ... }).overrideProvider(Outbox).useValue(recorded)
 * await recorded.emit(undefined, { type: 'order.created', aggregate: ['order', '1'], payload: {} });
 * console.log(recorded.events.map(({ type }) => type));
 */
export class RecordingOutbox {
  /** What was emitted so far, oldest first. */
  readonly events: (PlainEvent & { id: string })[] = [];

  async emit(_tx: unknown, given: unknown, options?: EmitOptions): Promise<string | string[]> {
    return Array.isArray(given) ? this.emitMany(_tx, given, options) : this.#add(toPlainEvent(given, options));
  }

  async emitMany(_tx: unknown, entries: readonly unknown[], options: EmitOptions = {}): Promise<string[]> {
    return toPlainEvents(entries, options).map((event) => this.#add(event));
  }

  async emitOnce(_tx: unknown, given: unknown, options?: EmitOptions): Promise<{ id: string; written: boolean }> {
    const event = toPlainEvent(given, options);
    const known = this.events.find(({ id }) => id === event.id);
    return known ? { id: known.id, written: false } : { id: this.#add(event), written: true };
  }

  #add(event: PlainEvent): string {
    const { id } = checkFields(event, limits);
    this.events.push({ ...event, id });
    return id;
  }
}
