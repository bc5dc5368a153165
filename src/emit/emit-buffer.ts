import type { InsertableEvent } from '../outbox/emitting/insert.ts';
import { transactionEnded } from '../outbox/emitting/insert.ts';

/** How a buffer writes to its transaction. */
export interface FlushTarget {
  /** Of its transaction, set with BEGIN. */
  readonly marker: string;
  /** Writes the events and records the number of this flush in the transaction, both in one statement. */
  write(events: readonly InsertableEvent[], flush: number): Promise<void>;
  /** Reads the numbers of the recorded flushes. A rollback to a savepoint removes a number with its events. */
  recorded(): Promise<ReadonlySet<number>>;
}

/**
 * The events of one outbox.transaction(), in the order of the calls. They are written with COMMIT, or flushed before an
 * event that is written immediately (`outbox.emit(tx, ...)`), so that seq follows program order.
 *
 * The caller may roll back to a savepoint and undo a flush after `emit` has resolved. So flushed events are kept until the
 * end, and before the next write the buffer asks the server which flushes still exist. Events of the others are written
 * again. A transaction without a flush asks nothing.
 */
export class EmitBuffer {
  readonly #target: FlushTarget;
  /** Every check since the start: one that fails makes the transaction fail. */
  readonly #checks: Promise<InsertableEvent[]>[] = [];
  #unchecked: Promise<InsertableEvent[]>[] = [];
  #unwritten: readonly InsertableEvent[] = [];
  /** By the number of their flush, in program order. */
  readonly #flushed = new Map<number, readonly InsertableEvent[]>();
  #flushes = 0;
  #isClosed = false;
  #isAbandoned = false;
  #hasWritten = false;
  /** Settles with the last write. Writes wait for each other, because their checks may take any time. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(target: FlushTarget) {
    this.#target = target;
  }

  /** A statement that carries it fails once the transaction has ended. */
  get marker(): string {
    return this.#target.marker;
  }

  /** Whether the work has ended, so that nothing may be added. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Whether something was written before COMMIT. */
  get hasWritten(): boolean {
    return this.#hasWritten;
  }

  close(): void {
    this.#isClosed = true;
  }

  /** The transaction is rolled back: nothing more is written, not even by calls that wait for their turn. */
  abandon(): void {
    this.#isClosed = true;
    this.#isAbandoned = true;
  }

  add(check: Promise<InsertableEvent[]>): void {
    this.#checks.push(check);
    this.#unchecked.push(check);
  }

  /** Flushes what was added before this call, then calls `write`. Rejects once the work has ended. */
  writeNow(write: () => Promise<void>): Promise<void> {
    if (this.#isClosed) return Promise.reject(transactionEnded());
    const added = this.#takeUnchecked();
    const turn = this.#turn.then(async () => {
      this.#refuseIfAbandoned();
      await this.#collect(added);
      await this.#flush();
      this.#refuseIfAbandoned();
      await write();
      this.#hasWritten = true;
    });
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /** Waits for writes in flight and returns what must be written with COMMIT. Rejects if any event was refused. */
  async rest(): Promise<readonly InsertableEvent[]> {
    await this.#turn;
    const added = this.#takeUnchecked();
    await Promise.all(this.#checks);
    await this.#collect(added);
    const rest = this.#unwritten;
    this.#unwritten = [];
    return rest;
  }

  #refuseIfAbandoned(): void {
    if (this.#isAbandoned) throw transactionEnded();
  }

  #takeUnchecked(): Promise<InsertableEvent[]>[] {
    const taken = this.#unchecked;
    this.#unchecked = [];
    return taken;
  }

  /** Sets #unwritten to everything that the transaction still lacks: undone flushes first, `added` last. */
  async #collect(added: readonly Promise<InsertableEvent[]>[]): Promise<void> {
    this.#unwritten = [...this.#unwritten, ...(await Promise.all(added)).flat()];
    if (this.#flushed.size === 0) return;
    const recorded = await this.#target.recorded();
    const undone = [...this.#flushed].filter(([flush]) => !recorded.has(flush));
    for (const [flush] of undone) this.#flushed.delete(flush);
    this.#unwritten = [...undone.flatMap(([, events]) => events), ...this.#unwritten];
  }

  async #flush(): Promise<void> {
    if (this.#unwritten.length === 0) return;
    const events = this.#unwritten;
    const flush = ++this.#flushes;
    // Before the write: if that fails, its number is not recorded and the events are collected again.
    this.#flushed.set(flush, events);
    this.#unwritten = [];
    await this.#target.write(events, flush);
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

/** The buffer of the outbox.transaction() that opened this transaction, while its work runs. */
export function bufferOf(tx: unknown): EmitBuffer | undefined {
  // Some clients' handles are functions with methods.
  return (typeof tx === 'object' && tx !== null) || typeof tx === 'function' ? open.get(tx) : undefined;
}
