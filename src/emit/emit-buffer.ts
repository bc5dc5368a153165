import type { InsertableEvent } from '../outbox/insert.ts';

/**
 * What one outbox.transaction() has been given to emit and has not written yet, in the order of the calls. An event that
 * is written at once (`outbox.emit(tx, ...)`) takes what was given before it along, so that seq follows the program.
 */
export class EmitBuffer {
  readonly #write: (events: readonly InsertableEvent[]) => Promise<void>;
  /** Every check since the beginning: one that failed fails the transaction, whatever became of the others. */
  readonly #checks: Promise<InsertableEvent[]>[] = [];
  #unwritten: Promise<InsertableEvent[]>[] = [];
  /** Settled when the last of the writes is. They wait for each other, because their checks may take any time. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(write: (events: readonly InsertableEvent[]) => Promise<void>) {
    this.#write = write;
  }

  add(check: Promise<InsertableEvent[]>): void {
    this.#checks.push(check);
    this.#unwritten.push(check);
  }

  /** Writes what was added before this call, and calls `write` then. */
  writeNow(write: () => Promise<void>): Promise<void> {
    const before = this.#take();
    const turn = this.#turn.then(async () => {
      const events = (await Promise.all(before)).flat();
      if (events.length > 0) await this.#write(events);
      await write();
    });
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /** What is left to be written with COMMIT, when every write under way has ended. Throws if any event was refused. */
  async rest(): Promise<InsertableEvent[]> {
    await this.#turn;
    const rest = this.#take();
    await Promise.all(this.#checks);
    return (await Promise.all(rest)).flat();
  }

  #take(): Promise<InsertableEvent[]>[] {
    const taken = this.#unwritten;
    this.#unwritten = [];
    return taken;
  }
}

/** By the transaction's handle. */
const open = new WeakMap<object, EmitBuffer>();

export function openBuffer(tx: unknown, buffer: EmitBuffer): void {
  open.set(tx as object, buffer);
}

export function closeBuffer(tx: unknown): void {
  open.delete(tx as object);
}

/** The buffer of the outbox.transaction() that has opened this transaction and is still at work. */
export function bufferOf(tx: unknown): EmitBuffer | undefined {
  return typeof tx === 'object' && tx !== null ? open.get(tx) : undefined;
}
