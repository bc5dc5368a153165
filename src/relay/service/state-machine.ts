/**
 * The mode of an object that has several, with the transitions that are legal. An illegal one is a bug: it throws in tests
 * and in development. In production the transition is made: a relay that keeps running is better than one that stops.
 */
export class StateMachine<State extends string> {
  readonly #name: string;
  readonly #transitions: Readonly<Record<State, readonly State[]>>;
  #current: State;

  constructor(name: string, initial: State, transitions: Readonly<Record<State, readonly State[]>>) {
    this.#name = name;
    this.#current = initial;
    this.#transitions = transitions;
  }

  get current(): State {
    return this.#current;
  }

  is(state: State): boolean {
    return this.#current === state;
  }

  /** Goes into this state. Nothing happens if it is in it already. */
  to(next: State): void {
    if (next === this.#current) return;
    if (!this.#transitions[this.#current].includes(next) && process.env.NODE_ENV !== 'production') {
      throw new Error(`Illegal transition of the ${this.#name}: ${this.#current} -> ${next}`);
    }
    this.#current = next;
  }
}
