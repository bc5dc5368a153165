import { safeShare, trustMs } from './tuning.ts';

/** Milliseconds of a clock that is never set and is the same in every thread of the process, unlike `performance.now()`. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1_000_000;

/** Where each value is in the shared memory. Times are in microseconds. */
const cell = { registration: 0, renewedAt: 1, provenAt: 2, connected: 3, movedAt: 4 } as const;
const cells = 5;
/** Later than any time: without a session lock there is nothing to prove. */
const always = 2n ** 62n;

const toMicros = (ms: number): bigint => BigInt(Math.round(ms * 1_000));

/**
 * What the heartbeat knows about the lease. In shared memory, so that a thread whose event loop was blocked knows it before it
 * has received a message.
 *
 * A registration has a number, so that what the heartbeat still writes about the last one does not count for the next.
 */
export class LeaseState {
  readonly memory: SharedArrayBuffer;
  readonly #cells: BigInt64Array;
  /** The registration that was last found valid, and when, by the clock of this thread. */
  #validFor: number | undefined;
  #validAt = 0;

  constructor(memory = new SharedArrayBuffer(cells * 8)) {
    this.memory = memory;
    this.#cells = new BigInt64Array(memory);
  }

  /** When the last successful renewal was sent. */
  get renewedAt(): number {
    return Number(Atomics.load(this.#cells, cell.renewedAt)) / 1_000;
  }

  /** Whether the heartbeat is connected. */
  get connected(): boolean {
    return Atomics.load(this.#cells, cell.connected) === 1n;
  }

  set connected(is: boolean) {
    Atomics.store(this.#cells, cell.connected, is ? 1n : 0n);
  }

  /** When the relay's event loop last moved. */
  get movedAt(): number {
    return Number(Atomics.load(this.#cells, cell.movedAt)) / 1_000;
  }

  moved(at: number): void {
    Atomics.store(this.#cells, cell.movedAt, toMicros(at));
  }

  /**
   * Whether deliveries may start under this registration. Every delivery asks, so a positive answer is kept for a millisecond: finding
   * it takes five BigInts.
   */
  isValid(registration: number, leaseMs: number): boolean {
    const now = performance.now();
    if (registration !== this.#validFor || now - this.#validAt >= 1) {
      if (!this.#isValidNow(registration, leaseMs)) return false;
      this.#validFor = registration;
      this.#validAt = now;
    }
    return true;
  }

  #isValidNow(registration: number, leaseMs: number): boolean {
    if (Atomics.load(this.#cells, cell.registration) !== BigInt(registration)) return false;
    const now = monotonicMs();
    const provenAt = Number(Atomics.load(this.#cells, cell.provenAt)) / 1_000;
    return now - this.renewedAt < leaseMs * safeShare && now - provenAt < trustMs;
  }

  renewed(sentAt: number): void {
    Atomics.store(this.#cells, cell.renewedAt, toMicros(sentAt));
  }

  /** The session holds the relay's lock, as a statement has shown that was sent at this time. */
  locked(registration: number, sentAt: number): void {
    Atomics.store(this.#cells, cell.provenAt, toMicros(sentAt));
    Atomics.store(this.#cells, cell.registration, BigInt(registration));
  }

  /** There is no session lock: only the lease counts. */
  leased(registration: number): void {
    Atomics.store(this.#cells, cell.provenAt, always);
    Atomics.store(this.#cells, cell.registration, BigInt(registration));
  }

  /** No delivery may start, from a millisecond later on at the latest: the session lock is lost, or the registration. */
  suspended(): void {
    Atomics.store(this.#cells, cell.registration, 0n);
  }
}
