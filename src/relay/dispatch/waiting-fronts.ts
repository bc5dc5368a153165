import type { ClaimedEvent } from '../event/claimed-event.ts';
import type { AloneQueue } from './alone-queue.ts';
import { Fifo } from './fifo.ts';
import type { SlotsByQueue } from './queue-slots.ts';

/** The events that have not started and that no event of their key is in front of. Each waits in one place. */
export class WaitingFronts {
  /** For a slot, by queue, or for a handler with limits. */
  readonly slots: SlotsByQueue;
  /** For no slot. */
  readonly unlimited = new Fifo<ClaimedEvent>();
  /** For its payload. Such an event takes no slot and is the only one of its key's front. */
  readonly loading = new Set<ClaimedEvent>();
  /** For all deliveries in flight to end: prime suspects. */
  readonly alone: AloneQueue;

  constructor(slots: SlotsByQueue, alone: AloneQueue) {
    this.slots = slots;
    this.alone = alone;
  }

  get #startable(): Fifo<ClaimedEvent>[] {
    return [this.unlimited, ...this.slots.all.map(({ startable }) => startable)];
  }

  /** The events of a key that may start. */
  startableOf(key: string): ClaimedEvent[] {
    return this.#startable.flatMap((fifo) => fifo.items()).filter((event) => event.key === key);
  }

  removeStartableOf(key: string): void {
    for (const fifo of this.#startable) fifo.remove((event) => event.key === key);
  }

  /** Returns whether the event was here. */
  delete(event: ClaimedEvent): boolean {
    const { startable, lines } = this.slots.of(event);
    if (this.loading.delete(event)) {
      lines?.notLoading(event);
      return true;
    }
    const isEvent = (other: ClaimedEvent) => other === event;
    return (
      startable.remove(isEvent) || this.unlimited.remove(isEvent) || lines?.delete(event) || this.alone.delete(event)
    );
  }

  drain(): ClaimedEvent[] {
    const events = [
      ...this.slots.all.flatMap(({ startable, lines }) => [...startable.drain(), ...(lines?.drain() ?? [])]),
      ...this.unlimited.drain(),
      ...this.loading,
      ...this.alone.drain(),
    ];
    this.loading.clear();
    return events;
  }
}
