import { nextTick } from 'node:process';
import type { Executor } from '../database/executor.ts';
import { notATransaction } from './refusal.ts';

// Each use is dropped with what waits for it.
const never = (): Promise<never> => new Promise(() => {});

interface State {
  isOpen: boolean;
  readonly parent: State | undefined;
  readonly callbacks: Set<() => void>;
}

/**
 * Knows which transactions of a client are open. For clients that open them with a callback, do not tell when a handle is
 * finished, and still run its statements then: on a connection that may be in another transaction.
 */
export class TrackedTransactions<Tx extends object> {
  readonly #states = new WeakMap<object, State>();
  readonly #onOpen: (tx: Tx) => void;

  /** `onOpen` is called with every handle before its work starts: to track what can be opened inside of it. */
  constructor(onOpen: (tx: Tx) => void) {
    this.#onOpen = onOpen;
  }

  isOpen(tx: unknown): boolean {
    let state = this.#stateOf(tx);
    if (!state) return false;
    for (; state; state = state.parent) if (!state.isOpen) return false;
    return true;
  }

  /** Whether this client has opened the transaction. */
  has(tx: unknown): boolean {
    return this.#stateOf(tx) !== undefined;
  }

  /**
   * Runs statements with `executor` while the transaction is open. When a connection is lost, postgres.js rejects the statement in
   * flight, and `begin` some microtasks later. A statement that it gets between the two ends the process with an uncaught exception
   * (up to 3.4.9 at least).
   */
  executor(tx: Tx, executor: Executor): Executor {
    return {
      query: async (text, values) => {
        // After all microtasks that are due.
        await new Promise<void>((resolve) => nextTick(resolve));
        if (!this.isOpen(tx)) throw notATransaction('This transaction has ended.');
        return executor.query(text, values);
      },
    };
  }

  /** Calls back once when the outermost transaction has ended. */
  afterEnd(tx: Tx, callback: () => void): void {
    let state = this.#stateOf(tx);
    while (state?.parent) state = state.parent;
    state?.callbacks.add(callback);
  }

  /**
   * Runs `work` in a transaction that `begin` opens, inside of `parent` if given. It counts as finished once the work has
   * settled, before COMMIT is sent: a statement that comes later would run after it.
   *
   * `begin` settles before the work if the connection is lost. Then the client must not learn that the work has ended: postgres.js
   * would send COMMIT or ROLLBACK on what has become of the connection, which fails with an uncaught exception, or ends the
   * transaction of another caller if it has reconnected.
   */
  async run<Result>(
    work: (tx: Tx) => unknown,
    begin: (work: (tx: Tx) => Promise<unknown>) => Promise<Result>,
    parent?: Tx,
  ): Promise<Result> {
    const state: State = { isOpen: true, parent: this.#stateOf(parent), callbacks: new Set() };
    let hasEnded = false;
    try {
      return await begin(async (tx) => {
        this.#states.set(tx, state);
        this.#onOpen(tx);
        try {
          const result = work(tx);
          // postgres.js takes a list of queries too.
          return await (Array.isArray(result) ? Promise.all(result) : result);
        } finally {
          if (hasEnded) await never();
          state.isOpen = false;
        }
      });
    } finally {
      hasEnded = true;
      state.isOpen = false;
      for (const callback of state.callbacks) callback();
    }
  }

  #stateOf(tx: unknown): State | undefined {
    // A handle of postgres.js is a function.
    return (typeof tx === 'object' && tx !== null) || typeof tx === 'function' ? this.#states.get(tx) : undefined;
  }
}
