import type { ResolvedHandler } from './handler-options.ts';

/** Event types whose handlers are remembered. */
const typesMax = 1_000;
const none: readonly ResolvedHandler[] = [];

/** The handlers of a relay by event type: those of the type itself, and those of each pattern that matches it. */
export class HandlerIndex {
  /** All of them. */
  readonly all: readonly ResolvedHandler[];
  readonly #byType: ReadonlyMap<string, readonly ResolvedHandler[]>;
  readonly #byPrefix: readonly (readonly [prefix: string, handlers: readonly ResolvedHandler[]])[];
  readonly #found = new Map<string, readonly ResolvedHandler[]>();

  constructor(byType: ReadonlyMap<string, readonly ResolvedHandler[]>) {
    this.#byType = byType;
    this.#byPrefix = [...byType].filter(([type]) => isPattern(type)).map(([type, list]) => [type.slice(0, -1), list]);
    this.all = [...byType.values()].flat();
  }

  of(type: string): readonly ResolvedHandler[] {
    if (this.#byPrefix.length === 0) return this.#byType.get(type) ?? none;
    let handlers = this.#found.get(type);
    if (handlers === undefined) {
      handlers = this.#find(type);
      // Other programs may emit any number of types.
      if (this.#found.size < typesMax) this.#found.set(type, handlers);
    }
    return handlers;
  }

  #find(type: string): readonly ResolvedHandler[] {
    const own = isPattern(type) ? none : (this.#byType.get(type) ?? none);
    const matching = this.#byPrefix.filter(([prefix]) => type.startsWith(prefix));
    return [...own, ...matching.flatMap(([, handlers]) => handlers)];
  }
}

/** Whether handlers are for every type that begins like this: `order.*`, or `*` for every type. */
export function isPattern(type: string): boolean {
  return type.endsWith('*');
}
