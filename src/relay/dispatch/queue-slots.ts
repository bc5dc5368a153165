import type { ClaimedEvent } from '../event/claimed-event.ts';
import { Fifo } from './fifo.ts';
import type { HandlerLines } from './handler-lines.ts';

/** The events of one queue: how many of them may be in flight, and which wait for that. */
export class QueueSlots {
  readonly max: number;
  /** What may start as soon as a slot is free. */
  readonly startable = new Fifo<ClaimedEvent>();
  taken = 0;
  /** Events that have not started. */
  waiting = 0;
  /** Of those, the ones behind a front that blocks this queue (`KeyQueue.blocks`), as of the last claim. */
  blocked = 0;
  inFlight = 0;
  /** Of those in flight, the ones that were started under a lease that is lost. */
  abandoned = 0;

  /** What waits for a handler with limits of its own; `undefined` if no handler has any. */
  readonly lines: HandlerLines | undefined;

  constructor(max: number, lines: HandlerLines | undefined) {
    this.max = max;
    this.lines = lines;
  }

  /** The next event that may start with a slot, if one is free. */
  next(): ClaimedEvent | undefined {
    if (this.taken >= this.max) return undefined;
    return this.lines ? this.lines.nextBeside(this.startable) : this.startable.shift();
  }
}

/** The slots of every queue that the relay works. A queue without a free slot delays no other. */
export class SlotsByQueue {
  readonly #byName: ReadonlyMap<string, QueueSlots>;
  readonly #all: readonly QueueSlots[];
  #next = 0;

  constructor(slots: ReadonlyMap<string, number>, newLines: () => HandlerLines | undefined) {
    this.#byName = new Map([...slots].map(([queue, max]) => [queue, new QueueSlots(max, newLines())]));
    this.#all = [...this.#byName.values()];
  }

  get all(): readonly QueueSlots[] {
    return this.#all;
  }

  of({ queue }: Pick<ClaimedEvent, 'queue'>): QueueSlots {
    return this.named(queue);
  }

  named(queue: string): QueueSlots {
    return this.#byName.get(queue) as QueueSlots;
  }

  total(figure: 'waiting' | 'inFlight' | 'abandoned'): number {
    let sum = 0;
    for (const slots of this.#all) sum += slots[figure];
    return sum;
  }

  /** The next event that may start, of the queues in turn. */
  shift(): ClaimedEvent | undefined {
    for (let i = 0; i < this.#all.length; i++) {
      const at = (this.#next + i) % this.#all.length;
      const slots = this.#all[at] as QueueSlots;
      const event = slots.next();
      if (event === undefined) continue;
      this.#next = at + 1;
      return event;
    }
    return undefined;
  }
}
